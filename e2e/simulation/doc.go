// Package simulation computes what a large site costs its store: a year of ten jobs of 800 pods each.
//
// Three parts use the product's own code, each as far as it can be driven without a network:
//
//   - [Partition] deals the shards of an epoch to the pods as plan.Order and plan.Shard do.
//   - [Measure] saves, restores and prunes a checkpoint and counts the requests that reach the backend.
//   - [Storm] has all pods start at one moment against a store that throttles, in virtual time: each has a
//     backends.Store, with its retries, its adaptive limit of concurrent requests and its hedging.
//
// [Year] draws the failures of the machines and adds it all up. The page docs/operations/at-scale.md has the
// results; "make simulation" writes them.
package simulation
