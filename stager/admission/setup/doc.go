// Package setup writes what a cluster needs to put stager into its pods by itself:
// [Webhook] for the admission webhook, [Policy] for a MutatingAdmissionPolicy, which
// needs no pod of its own and knows one plan.
package setup
