package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// smallRole lets tasks of OpenPAI, which ask for whole processors and a shell that the image
// does not have, run on the node.
var smallRole = strings.NewReplacer(
	"- bash\n", "- sh\n",
	"image: trainer\n", "image: "+trainerImage+"\n                  imagePullPolicy: Never\n",
)

// aProcessor is what each task asks for, and each container of stager beside it: the requests
// of a pod that is guaranteed its resources equal its limits.
var aProcessor = regexp.MustCompile(`cpu: "?1"?([,}\n])`)

// plays does for a manifest what the controller of JobSets does, by their documentation:
// each replicated Job becomes a Job NAME-ROLE-0, whose pods are in the subdomain of a headless
// Service of the JobSet's name. It returns the Jobs' names, in order.
func (c *cluster) plays(t *testing.T, manifest string) (jobs []string) {
	t.Helper()
	for _, o := range c.creates(t, aProcessor.ReplaceAllString(smallRole.Replace(manifest), "cpu: 10m$1")) {
		if o["kind"] != "JobSet" {
			t.Fatalf("there is a %s, want a JobSet alone", o["kind"])
		}
		set, _ := o.at("metadata", "name").(string)
		c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {jobset.sigs.k8s.io/jobset-name: %[1]s}}}`, set))
		t.Cleanup(func() { _, _ = c.kubectl(context.Background(), "", "delete", "service", set, "--wait=false") }) // all ends anyway
		roles, _ := o.at("spec", "replicatedJobs").([]any)
		for _, r := range roles {
			role := object(r.(map[string]any))
			labels := map[string]any{"jobset.sigs.k8s.io/jobset-name": set, "jobset.sigs.k8s.io/replicatedjob-name": role["name"], "jobset.sigs.k8s.io/job-index": "0"}
			spec, _ := role.at("template", "spec").(map[string]any)
			pod, _ := object(spec).at("template", "spec").(map[string]any)
			template, _ := spec["template"].(map[string]any)
			metadata, _ := template["metadata"].(map[string]any)
			metadata["labels"] = labels
			pod["subdomain"] = set
			name := fmt.Sprintf("%s-%s-0", set, role["name"])
			text, err := json.Marshal(map[string]any{
				"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": name, "labels": labels}, "spec": spec,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.apply(t, string(text))
			jobs = append(jobs, name)
		}
	}
	return jobs
}

// serveNames is the cluster's DNS for HOSTNAME.SERVICE, the names of pods in the subdomain of a
// headless Service. It knows what the endpoints of Services say, and ends with the test.
func (c *cluster) serveNames(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(nodeIP, "53"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); conn.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer, err := c.answer(ctx, buffer[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from) // who gets none asks again
			}
		}
	}()
}

// answer answers a DNS query.
func (c *cluster) answer(ctx context.Context, query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(errors.New("not one question"), err)
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	host, service, _ := strings.Cut(strings.TrimSuffix(q.Name.String(), "."), ".")
	address, err := c.endpoint(ctx, host, service)
	switch {
	case err != nil:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: [4]byte(address.To4())},
		}}
	}
	return m.Pack()
}

// endpoint is the address of the pod of a host name in a Service.
func (c *cluster) endpoint(ctx context.Context, host, service string) (net.IP, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := c.kubectl(ctx, "", "get", "endpointslices", "-l", "kubernetes.io/service-name="+service, "-o", "json")
	var list struct {
		Items []struct {
			Endpoints []struct {
				Addresses []string
				Hostname  string
			}
		}
	}
	if err = errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil {
		return nil, err
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Hostname == host && len(e.Addresses) > 0 {
				if ip := net.ParseIP(e.Addresses[0]); ip.To4() != nil {
					return ip, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("there is no %s.%s", host, service)
}
