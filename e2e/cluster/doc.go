// Package cluster tests stager in a real Kubernetes: API server, controllers,
// scheduler, containerd and a kubelet with one node, on one Linux machine, without a
// registry and without anything installed, as root.
//
// The tests are of two kinds. "make test-apiserver" runs those that need an API server
// alone: [TestManifests] and its neighbours ask it whether it would take what stager
// generates, strictly, and [TestWebhook] has it ask stager. "make test-cluster" runs
// these and [TestLifecycle]: jobs with the release image on a node, and a look at what
// is in the store afterwards, whatever happened to the pod.
//
// How it goes: the parts are built from source once and kept in the user's cache
// directory (build.go). The test then starts itself again in namespaces of its own for
// processes, mounts and the network (isolate.go), in which the cluster's parts run
// (control.go, node.go) under certificates of a day (pki.go). Whichever way the test
// ends, the kernel ends everything in there: nothing is left on the machine, and two
// runs never meet.
package cluster
