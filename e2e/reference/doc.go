// Package reference generates what can be looked up about stager from its code: the fields of a plan,
// as a JSON Schema for editors and as a page, and the command line, which the binary prints.
//
// The plan: structure and types come from package plan, descriptions from the comments of its fields. Defaults,
// valid values and bounds come from the parser: each field is set to values until it refuses one.
package reference
