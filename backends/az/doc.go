// Package az implements Azure Blob Storage.
//
//	az://container/directory/?account=ACCOUNT
//	abfss://container@ACCOUNT.dfs.core.windows.net/directory/
//	az://                          lists the containers of the account
//
// [Schemes] lists the parameters. The account comes from ?account=, or from files in Options.Secrets
// or variables named AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_ACCOUNT, or from the connection
// string. The endpoint is https://ACCOUNT.blob.core.windows.net unless ?endpoint=,
// AZURE_STORAGE_SERVICE_ENDPOINT or the connection string names another.
//
// # Credentials
//
// The first of these sources that has any:
//
//  1. files in Options.Secrets named AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or
//     AZURE_STORAGE_CONNECTION_STRING. They are read again every few minutes and when the store
//     rejects them, so a changed Secret takes effect;
//  2. the variables of the same names, from Options.Getenv;
//  3. workload identity: AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_ID and AZURE_TENANT_ID, which
//     Azure's webhook sets in pods;
//  4. the managed identity of the machine: the one of AZURE_CLIENT_ID, or the system's.
//
// With ?anonymous=true requests are not signed, for public containers.
//
// # Reading
//
// Versions are ETags. Every read carries If-Match, and the ETag and the range of the response are
// compared with the request. Azure stores no checksum of a blob that was written in blocks, and an
// MD5 of others only if the writer set one. So bytes that are read are verified by size and version,
// and by TLS on their way.
//
// Directories of accounts with a hierarchical namespace are not listed.
//
// # Writing
//
// Objects of up to 8 MiB are one Put Blob, larger ones parallel Put Block and one Put Block List,
// which decides atomically: IfAbsent is If-None-Match: *, IfVersion is If-Match. Every request with
// bytes carries their CRC-64, by which Azure rejects corrupted bytes. Emulators get an MD5.
//
// A Commit whose response was lost can be repeated. Each write carries a random value in the
// metadata, stagerwrite, which identifies its own blob.
//
// # Incomplete uploads
//
// Uncommitted blocks belong to the name of a blob and not to an upload. Their IDs name the upload,
// the time and the checksum, so another process can continue it and Sweep finds it. A commit of the
// same name removes the blocks of all uploads; those then start again. Azure removes blocks itself
// after a week without a new one.
//
// Azure has no request that removes blocks. Abort and Sweep commit an empty blob, with
// stagerremoved in its metadata, if nothing has this name, and delete it. List and Stat hide it
// meanwhile. Blocks of a name that has a blob cannot be removed: they go with the next
// write or after a week, and Sweep does not report them. Blocks of other programs are left alone.
package az
