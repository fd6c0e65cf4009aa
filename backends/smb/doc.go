// Package smb reads and writes objects on SMB 2.0.2 to 3.1.1 shares: Windows, Samba, Azure Files
// and NAS.
//
//	smb://user@server/share/directory/
//	smb://DOMAIN;user@server:4450/share/directory/?signing=off
//
// [Scheme] describes the URL parameters. The share must exist. The directory is created when
// needed.
//
// # Credentials
//
// User and domain come from the URL, then from files named username and domain in
// Options.Secrets, then from SMB_USERNAME and SMB_DOMAIN. The password comes from the file
// password or from SMB_PASSWORD. The file names are those of the Secret of csi-driver-smb. Each
// new session reads them again, so it picks up a changed Secret. After a refused login the
// package does not retry for 30 seconds, because servers lock accounts.
//
// Kerberos is used when there is no password and a keytab or ticket cache is named; see package
// kerberos. The service is cifs on the host of the URL, so the URL must contain a host name, not
// an address.
//
// All requests are signed or encrypted unless ?signing=off. A session encrypts when the server
// requires it. Without ?signing=off it also encrypts when the server negotiates SMB 3.1.1 with
// AES-GCM. Encryption authenticates as signing does and is much faster: it uses the AES
// instructions of the CPU, which the signing code of the library does not.
//
// # The library
//
// The package uses the CloudSoda fork of go-smb2. The original fails on every read from a server
// that requires signing. The library has no deadlines and no reconnection, and a call must
// not be interrupted while it sends. Each call therefore runs to its end in its own goroutine,
// and the caller returns when its context ends. Connecting and logging in take at most 10
// seconds. A session ends when the server sends nothing for 18 seconds while requests are
// pending. All its calls then fail with kind Unavailable, and the next call connects again.
//
// There are two sessions. Each allows at most twelve concurrent transfers of 512 KiB and eight
// other calls. With more, servers run out of credits and return STATUS_INVALID_PARAMETER. A new
// session measures the round-trip time with an echo. Streams from a nearby server read less far
// ahead, because there more read-ahead only costs memory.
//
// # Keys
//
// An object is a file. Its key is the path below the root of the share. SMB does not allow the
// characters :*?"<>| nor a dot or space at the end of a name. They are mapped to a reserved range
// of Unicode, as the Linux and macOS clients do; ?mapchars=off rejects them instead. Keys with a
// backslash are rejected. On most servers "A" and "a" are the same name, so keys that differ only
// in case overwrite each other. List omits names that begin with .stager-tmp-. It fails on a name
// that cannot be requested, because a dataset that silently lacks files is worse than none. The
// server follows links. If the server leaves that to its clients, List follows them as far as
// they stay in the share.
//
// # Versions
//
// A version consists of size, modification time and file id, which List receives with the names.
// Servers that report other file ids in listings than for open files get versions without them; each
// Backend finds that out once, with three or four requests.
// A read compares the version at its end; a long read also compares it at its start. Capabilities
// do not promise PinnedReads: while a file is open, Samba reports an old modification time if
// the file is changed on the server itself.
//
// # Writes
//
// A file is written under a temporary name beside its final name, flushed to the disk of the
// server, and renamed. If the connection is lost before the flush, the parts are written again,
// because a server that crashed may have lost them.
//
// The rename replaces an existing file at once. Samba may still report at that moment that the
// name does not exist; see certain. Lookups that find nothing are therefore repeated once.
//
// The library cannot rename without replacing the target. IfAbsent is therefore decided by flag
// files that writers create beside the key; see claim. Of several IfAbsent writers one wins. A
// file that another program creates between the check and the rename is overwritten.
//
// IfVersion uses the same flags to exclude other writers while it compares the version and
// renames. A flag ends with the session of its writer, so a crashed writer blocks nobody for
// long.
//
// A server does not remove an open file, and Windows does not replace one. This process closes
// its own handles before it removes or replaces a file; its readers reopen the file and detect
// the change. For other clients it waits some seconds. Delete also removes directories that
// become empty, because object stores have none.
package smb
