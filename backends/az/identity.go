package az

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// identity gets tokens from Entra ID and keeps them until shortly before they expire.
type identity struct {
	azcore.TokenCredential
	what string // for errors
}

// newIdentity returns the workload identity of a pod, or the managed identity of the machine.
func newIdentity(getenv func(string) string, transport *http.Transport) (azcore.TokenCredential, error) {
	file, client, tenant := getenv("AZURE_FEDERATED_TOKEN_FILE"), getenv("AZURE_CLIENT_ID"), getenv("AZURE_TENANT_ID")
	if file == "" {
		return newManaged(getenv, client)
	}
	if client == "" || tenant == "" {
		return nil, backends.Errorf(backends.Permission, "open", "", "AZURE_FEDERATED_TOKEN_FILE also needs AZURE_CLIENT_ID and AZURE_TENANT_ID: does the service account have the annotation azure.workload.identity/client-id?")
	}
	opts := azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: &transportOf{&http.Client{Transport: transport, Timeout: time.Minute}},
			Retry:     policy.RetryOptions{MaxRetries: 2},
		},
		ClientID: client, TenantID: tenant, TokenFilePath: file,
	}
	if host := getenv("AZURE_AUTHORITY_HOST"); host != "" {
		opts.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: host}
		opts.DisableInstanceDiscovery = host != cloud.AzurePublic.ActiveDirectoryAuthorityHost
	}
	found, err := azidentity.NewWorkloadIdentityCredential(&opts)
	if err != nil {
		return nil, &identityError{"the workload identity", err}
	}
	return &identity{found, "the workload identity"}, nil
}

// newManaged returns the managed identity of the machine. Its service is link-local: no proxy, and a
// short timeout.
func newManaged(getenv func(string) string, client string) (azcore.TokenCredential, error) {
	opts := azidentity.ManagedIdentityCredentialOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: &metadata{getenv("AZURE_POD_IDENTITY_AUTHORITY_HOST"), http.Client{
				Timeout:   10 * time.Second,
				Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, DisableKeepAlives: true},
			}},
			Retry: policy.RetryOptions{MaxRetries: -1}, // the Store retries
		},
	}
	if client != "" {
		opts.ID = azidentity.ClientID(client)
	}
	found, err := azidentity.NewManagedIdentityCredential(&opts)
	if err != nil {
		return nil, &identityError{"the managed identity", err}
	}
	return &identity{found, "the managed identity"}, nil
}

// GetToken implements azcore.TokenCredential.
func (i *identity) GetToken(ctx context.Context, opts policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := i.TokenCredential.GetToken(ctx, opts)
	if err != nil && ctx.Err() == nil {
		err = &identityError{i.what, err}
	}
	return token, err
}

// identityError is a failure to get a token.
type identityError struct {
	what string
	err  error
}

func (e *identityError) Error() string {
	var failed *azidentity.AuthenticationFailedError
	if errors.As(e.err, &failed) && failed.RawResponse != nil {
		return fmt.Sprintf("no credentials were found, and %s has no token: HTTP %d", e.what, failed.RawResponse.StatusCode)
	}
	return fmt.Sprintf("no credentials were found, and %s has no token: %s", e.what, objectstore.Shorten(objectstore.Innermost(e.err).Error()))
}

// NonRetriable makes the SDK return the error at once.
func (e *identityError) NonRetriable() {}

// kind returns Unavailable for a failing service, which may recover. A machine without one is a
// Permission error, because waiting does not help.
func (e *identityError) kind() backends.Kind {
	var failed *azidentity.AuthenticationFailedError
	if errors.As(e.err, &failed) && failed.RawResponse != nil {
		if status := failed.RawResponse.StatusCode; status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
			return backends.Unavailable
		}
	}
	return backends.Permission
}

// metadata sends requests to the metadata service of the machine, or to another host.
type metadata struct {
	host   string
	client http.Client
}

// Do implements policy.Transporter.
func (m *metadata) Do(req *http.Request) (*http.Response, error) {
	if to, err := url.Parse(m.host); err == nil && to.Host != "" {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, req.Host = to.Scheme, to.Host, ""
	}
	return m.client.Do(req)
}

// transportOf is a policy.Transporter.
type transportOf struct{ *http.Client }
