// Package kinds tests injection against what other projects publish: the schemas of their
// kinds, and other libraries that write YAML.
package kinds
