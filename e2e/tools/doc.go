// Package tools tests what the manual says to type into kustomize, kubectl, kpt and Helm,
// with these programs. They are built from their modules, once, when STAGER_TEST_REQUIRE
// names "tools".
package tools
