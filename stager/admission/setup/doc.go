// Package setup generates the manifests with which a cluster injects stager by itself. [Webhook]
// installs the admission webhook. [Policy] generates a MutatingAdmissionPolicy, which needs no pod
// of its own and supports one plan.
package setup
