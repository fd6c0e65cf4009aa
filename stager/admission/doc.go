// Package admission is the mutating admission webhook behind "stager webhook". It injects stager
// into pods as a cluster creates them.
//
// [Mutator.Review] maps an AdmissionReview to its response. It uses neither network nor disk:
// jobspec.Inject changes the pod, and the response is the smallest JSON patch with that change.
// [Server] serves it over HTTPS, with probes and metrics on a separate port. Package certs supplies
// the certificate. [Plans] caches the plans of ConfigMaps and refreshes them in the background.
//
//	server := &admission.Server{Mutator: mutator, Certificates: keeper, Log: slog.Default()}
//	err := server.Run(ctx, reviews, probes) // two net.Listeners; returns when ctx ends
//
// # Guarantees
//
//   - A pod is injected completely, or refused with a message that its user sees.
//   - A pod that was injected before stays as it is, so the API server may call the webhook
//     again (reinvocationPolicy: IfNeeded).
//   - Nothing else is ever changed.
package admission
