package release

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// productPath is the product's module.
const productPath = "github.com/stager-dev/stager"

// sbom writes the list of what is linked into the binaries, in both common formats.
func (r *release) sbom(modules []module) error {
	for name, bom := range map[string]any{"cdx": r.cycloneDX(modules), "spdx": r.spdx(modules)} {
		text, err := json.MarshalIndent(bom, "", "  ")
		if err != nil {
			return err
		}
		if err := r.file(fmt.Sprintf("stager_%s_sbom.%s.json", r.Version, name), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// purl is how both formats name a module.
func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }

// id identifies this release's documents, and is the same each time.
func (r *release) id() string {
	sum := sha256.Sum256([]byte(productPath + "\n" + r.Version + "\n" + r.Commit))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562, version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// ids returns the licenses of a module as an SPDX expression.
func (m module) ids() string {
	var ids []string
	for _, l := range m.Licenses {
		if l.ID != "" && !slices.Contains(ids, l.ID) {
			ids = append(ids, l.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND ")
}

type object = map[string]any

// cycloneDX returns the list as CycloneDX 1.6.
func (r *release) cycloneDX(modules []module) object {
	component := func(kind, path, version, license string) object {
		ref := purl(path, version)
		return object{
			"type": kind, "bom-ref": ref, "name": path, "version": version, "purl": ref,
			"licenses": []object{{"expression": license}},
		}
	}
	var components []object
	var refs []string
	for _, m := range modules {
		components = append(components, component("library", m.Path, m.Version, m.ids()))
		refs = append(refs, purl(m.Path, m.Version))
	}
	return object{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": "urn:uuid:" + r.id(), "version": 1,
		"metadata":     object{"timestamp": r.Date.Format(time.RFC3339), "component": component("application", productPath, "v"+r.Version, "Apache-2.0")},
		"components":   components,
		"dependencies": []object{{"ref": purl(productPath, "v"+r.Version), "dependsOn": refs}},
	}
}

// spdx returns the list as SPDX 2.3.
func (r *release) spdx(modules []module) object {
	pkg := func(id, path, version, license string) object {
		return object{
			"SPDXID": id, "name": path, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"licenseConcluded": license, "licenseDeclared": license, "copyrightText": "NOASSERTION",
			"externalRefs": []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl(path, version)}},
		}
	}
	relation := func(from, kind, to string) object {
		return object{"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to}
	}
	const product = "SPDXRef-stager"
	packages := []object{pkg(product, productPath, "v"+r.Version, "Apache-2.0")}
	relations := []object{relation("SPDXRef-DOCUMENT", "DESCRIBES", product)}
	for i, m := range modules {
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		packages = append(packages, pkg(id, m.Path, m.Version, m.ids()))
		relations = append(relations, relation(product, "DEPENDS_ON", id))
	}
	return object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "stager " + r.Version,
		"documentNamespace": "https://" + productPath + "/sbom/" + r.Version + "/" + r.id(),
		"creationInfo":      object{"created": r.Date.Format(time.RFC3339), "creators": []string{"Organization: stager maintainers"}},
		"packages":          packages, "relationships": relations,
	}
}
