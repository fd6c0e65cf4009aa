// Package admission puts stager into pods as a cluster creates them: it is the
// admission webhook behind "stager webhook".
//
// Begin with [Mutator.Review], a function from an AdmissionReview to its answer that
// touches neither network nor disk; what it does to a pod is jobspec.Inject's work, and
// the answer is the smallest JSON patch that says so. [Server] is HTTPS around it, with
// probes and metrics on a port of their own. The certificate comes from package certs;
// [Plans] keeps the plans of ConfigMaps at hand, read beside the requests.
//
// What is promised: a pod is answered whole or refused with a sentence that its user
// sees; one that has been injected before is left as it is, so that the API server may
// ask again (reinvocationPolicy IfNeeded); nothing else is ever changed.
package admission
