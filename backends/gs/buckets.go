package gs

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stager-dev/stager/backends"
)

// listBuckets returns the buckets of the project.
func listBuckets(ctx context.Context, t backends.Target) (names []string, err error) {
	b, err := newBucket(t)
	if err != nil {
		return nil, err
	}
	defer b.Close() // it was only read from
	project, err := b.credentials.project(ctx)
	if err != nil {
		return nil, b.explain("list", "", err)
	}
	for token := ""; ; {
		q := &call{method: http.MethodGet, path: []string{"storage", "v1", "b"}, header: make(http.Header), query: url.Values{
			"project": {project}, "maxResults": {strconv.Itoa(perPage)}, "fields": {"nextPageToken,items(name)"},
		}}
		if token != "" {
			q.query.Set("pageToken", token)
		}
		var out struct {
			NextPageToken string
			Items         []struct{ Name string }
		}
		if err := b.client.json(ctx, q, &out); err != nil {
			return nil, b.explain("list", "", err)
		}
		for _, item := range out.Items {
			names = append(names, item.Name)
		}
		if out.NextPageToken == "" || out.NextPageToken == token {
			return names, nil
		}
		token = out.NextPageToken
	}
}

// project returns the project of the environment, of the credentials, or of the machine.
func (c *credentials) project(ctx context.Context) (string, error) {
	for _, name := range []string{"GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"} {
		if id, err := value(c.opts, name); id != "" || err != nil {
			return id, err
		}
	}
	text, err := c.file()
	if err != nil {
		return "", err
	}
	var of struct {
		Project string `json:"project_id"`
		Quota   string `json:"quota_project_id"`
	}
	if text == nil {
		id, err := c.query(ctx, "project/project-id")
		if err != nil && ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		of.Project = string(id) // without an answer the project is unknown
		if err != nil {
			of.Project = ""
		}
	} else {
		_ = json.Unmarshal(text, &of) // fromFile reports what is wrong with it
	}
	for _, id := range []string{of.Project, of.Quota} {
		if projectForm.MatchString(id) {
			return id, nil
		}
	}
	return "", backends.Errorf(backends.Invalid, "list", "", "the project whose buckets to list is unknown: set GOOGLE_CLOUD_PROJECT, or name a bucket, as in gs://bucket/")
}
