package s3

import (
	"context"
	"errors"
	"io"
	"net/http"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/stager-dev/stager/backends"
)

// requester sends the requests that are nearly all of the traffic. There are two: reader, which is
// stager's own, and viaSDK for ?client=sdk.
type requester interface {
	// get requests the bytes of an object. The caller closes the body.
	get(ctx context.Context, q *call) (*http.Response, error)
	// put uploads an object or a part and returns the response header.
	put(ctx context.Context, q *call) (http.Header, error)
	// list requests one page.
	list(ctx context.Context, sel selection, token string) (page, error)
	// probe requests one entry of the listing, for the details in a possible error response.
	probe(ctx context.Context) error
}

var _, _ requester = (*reader)(nil), (*viaSDK)(nil)

// viaSDK sends requests by the client of the SDK. It takes two to three times as much CPU time as
// reader, and is there to compare with, and to fall back on.
type viaSDK struct {
	client *s3.Client
	bucket string
	payer  types.RequestPayer
}

func (v *viaSDK) get(ctx context.Context, q *call) (*http.Response, error) {
	out, err := v.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &v.bucket, Key: &q.key, RequestPayer: v.payer,
		ChecksumMode: types.ChecksumMode(q.values[modeField]), IfMatch: q.field(matchField), Range: q.field(rangeField),
		SSECustomerAlgorithm: q.field(customerAlgorithmField), SSECustomerKey: q.field(customerKeyField), SSECustomerKeyMD5: q.field(customerSumField),
	})
	if err != nil {
		return nil, err
	}
	res, err := responseOf(out.ResultMetadata)
	if err != nil {
		out.Body.Close() //nolint:errcheck // nobody reads it
		return nil, err
	}
	got := *res
	got.Body = out.Body
	return &got, nil
}

func (v *viaSDK) put(ctx context.Context, q *call) (http.Header, error) {
	var body io.ReadSeeker
	size := int64(0)
	if q.body != nil {
		size = q.body.Size()
		body = q.body.Reader()
	}
	var metadata middleware.Metadata
	if q.upload != "" {
		out, err := v.client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &v.bucket, Key: &q.key, UploadId: &q.upload, PartNumber: new(int32(q.number)), RequestPayer: v.payer,
			Body: body, ContentLength: &size, ChecksumCRC64NVME: q.field(crcField),
			SSECustomerAlgorithm: q.field(customerAlgorithmField), SSECustomerKey: q.field(customerKeyField), SSECustomerKeyMD5: q.field(customerSumField),
		}, unsignedBody)
		if err != nil {
			return nil, err
		}
		metadata = out.ResultMetadata
	} else {
		out, err := v.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &v.bucket, Key: &q.key, RequestPayer: v.payer,
			Body: body, ContentLength: &size, ContentType: q.field(typeField), ChecksumCRC64NVME: q.field(crcField),
			Metadata: map[string]string{markName: q.values[markField]}, IfMatch: q.field(matchField), IfNoneMatch: q.field(noneMatchField),
			ServerSideEncryption: types.ServerSideEncryption(q.values[sseField]), SSEKMSKeyId: q.field(kmsKeyField), Tagging: q.field(tagsField),
			SSECustomerAlgorithm: q.field(customerAlgorithmField), SSECustomerKey: q.field(customerKeyField), SSECustomerKeyMD5: q.field(customerSumField),
		}, unsignedBody)
		if err != nil {
			return nil, err
		}
		metadata = out.ResultMetadata
	}
	res, err := responseOf(metadata) //nolint:bodyclose // the SDK has closed it
	if err != nil {
		return nil, err
	}
	return res.Header, nil
}

func (v *viaSDK) list(ctx context.Context, sel selection, token string) (page, error) {
	in := &s3.ListObjectsV2Input{
		Bucket: &v.bucket, Prefix: &sel.prefix, Delimiter: of(sel.delimiter), StartAfter: of(sel.after),
		EncodingType: types.EncodingTypeUrl, RequestPayer: v.payer,
	}
	if token != "" {
		in.ContinuationToken = &token
	}
	out, err := v.client.ListObjectsV2(ctx, in)
	if err != nil {
		return page{}, err
	}
	p := page{more: value(out.IsTruncated), next: value(out.NextContinuationToken)}
	for _, obj := range out.Contents {
		p.objects = append(p.objects, backends.Object{Key: value(obj.Key), Size: value(obj.Size), ModTime: value(obj.LastModified), Version: version(obj.ETag)})
	}
	for _, common := range out.CommonPrefixes {
		p.prefixes = append(p.prefixes, value(common.Prefix))
	}
	return p, p.decode(out.EncodingType == types.EncodingTypeUrl)
}

func (v *viaSDK) probe(ctx context.Context) error {
	_, err := v.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &v.bucket, MaxKeys: new(int32(1)), RequestPayer: v.payer})
	return err
}

// field returns the value of a header, or nil.
func (q *call) field(i int) *string {
	return of(q.values[i])
}

// unsignedBody signs a request without its body, which a checksum protects. Otherwise the body would
// be read twice.
func unsignedBody(o *s3.Options) {
	o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// responseOf returns the HTTP response that the SDK keeps with a result.
func responseOf(metadata middleware.Metadata) (*http.Response, error) {
	res, ok := awsmiddleware.GetRawResponse(metadata).(*smithyhttp.Response)
	if !ok {
		return nil, errors.New("the SDK returned no HTTP response")
	}
	return res.Response, nil
}
