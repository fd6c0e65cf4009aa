package main

import (
	"regexp"
	"testing"
)

// namedImage finds the images that manifests and commands name, in blocks and in sentences.
var namedImage = regexp.MustCompile(`(?:\bimage: *|--image[= ])["'` + "`" + `]?([^\s"'` + "`" + `,}#]+)`)

// stagerImage matches an image that is called stager; its first part is the registry, if it has a dot
// or a port, or is localhost.
var stagerImage = regexp.MustCompile(`^((?:[\w-]+(?:\.[\w-]+)+(?::\d+)?|[\w.-]+:\d+|localhost)/)?(?:[\w.-]+/)*stager(?:[:@].*)?$`)

// The manual warns of the image "stager" without a registry, which clusters resolve to that of other
// authors. No page and no example shows it.
func TestManualImagesHaveARegistry(t *testing.T) {
	seen := 0
	for _, line := range manualLines(t) {
		for _, found := range namedImage.FindAllStringSubmatch(line.text, -1) {
			if parts := stagerImage.FindStringSubmatch(found[1]); parts != nil {
				seen++
				if parts[1] == "" {
					t.Errorf("%s: the image %q has no registry; write registry.example.com/stager:0.1.0", line.place, found[1])
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("got %d images of stager in the manual, want those of the README and of the webhook's page", seen)
	}
}

func TestManualImagesWithoutARegistryAreFound(t *testing.T) {
	for image, want := range map[string]bool{
		"stager": true, "stager:0.1.0": true, "team/stager": true, "stager@sha256:00": true,
		"registry.example.com/stager:0.1.0": false, "localhost/stager:dev": false, "registry:5000/a/stager": false, "trainer": false, "stager-tools": false,
	} {
		found := namedImage.FindStringSubmatch("  image: " + image + " # by make image")
		if found == nil || found[1] != image {
			t.Fatalf("%s: got %q", image, found)
		}
		parts := stagerImage.FindStringSubmatch(found[1])
		if got := parts != nil && parts[1] == ""; got != want {
			t.Errorf("%s: got %v, want %v", image, got, want)
		}
	}
}
