package pai

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
)

// registry is an image registry with its credentials.
type registry struct{ server, user, password string }

// dockerHub is the name of Docker Hub in the kubelet's configuration.
const dockerHub = "https://index.docker.io/v1/"

// registryFile parses the three lines of an authFile of the first format.
func (r *reader) registryFile(text []byte) []registry {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), "\r", "")), "\n")
	if len(lines) != 3 || slices.Contains(lines, "") {
		r.faultInFile("the authFile has %s; write three: registry, user, password", english.Plural(len(lines), "line", ""))
		return nil
	}
	return []registry{{lines[0], lines[1], lines[2]}}
}

func (c *conversion) pullSecret() string { return c.names.job + "-registry" }

// registrySecret returns the Secret of the registries, or nil if there are none.
func (c *conversion) registrySecret() entries {
	if len(c.registries) == 0 {
		if c.authFile != "" {
			c.warn("authFile is not read; pass its three lines with --auth-file, or create the Secret yourself: kubectl create secret docker-registry %s --docker-server=… --docker-username=… --docker-password=…", c.pullSecret())
		}
		return nil
	}
	auths := make(map[string]map[string]string)
	for _, r := range c.registries {
		if r.server == "" || r.server == "docker.io" {
			r.server = dockerHub
		}
		auths[r.server] = map[string]string{
			"username": r.user, "password": r.password, "auth": base64.StdEncoding.EncodeToString([]byte(r.user + ":" + r.password)),
		}
	}
	config, _ := json.Marshal(map[string]any{"auths": auths}) // only strings
	return secretObject(c.pullSecret(), "kubernetes.io/dockerconfigjson", entries{{key: ".dockerconfigjson", value: base64.StdEncoding.EncodeToString(config)}})
}

// commandsPath is the directory of commands that contain secrets.
const commandsPath = podRoot + "/commands"

func (c *conversion) commandSecretName() string { return c.names.job + "-commands" }

// commandSecret returns a Secret with the scripts of roles whose commands contain secrets, with the
// role's name as key, or nil. Many more users can read a job than a Secret.
func (c *conversion) commandSecret() entries {
	var scripts entries
	for _, t := range c.roles {
		if t.secret {
			scripts = append(scripts, entry{key: c.names.roles[t.name], value: base64.StdEncoding.EncodeToString([]byte(c.script(t)))})
		}
	}
	if len(scripts) == 0 {
		return nil
	}
	return secretObject(c.commandSecretName(), "Opaque", scripts)
}

func secretObject(name, kind string, data entries) entries {
	return entries{
		{key: "apiVersion", value: "v1"},
		{key: "kind", value: "Secret"},
		{key: "metadata", value: entries{{key: "name", value: name}}},
		{key: "type", value: kind},
		{key: "data", value: data},
	}
}
