// Package sftp reads and writes objects in directories of SSH servers, by version 3 of SFTP.
//
//	sftp://user@server/directory/
//	sftp://user@server:2222/~/directory-in-home/?hostkey=SHA256:…
//
// [Scheme] describes the URL parameters. The path is absolute, and relative to the home directory
// after "/~/". A missing directory has no objects, and the first write creates it.
//
// # Credentials
//
// The user comes from the URL, a file named username in Options.Secrets, or SFTP_USERNAME. A
// private key comes from the file ssh-privatekey, as in Secrets of type kubernetes.io/ssh-auth, or
// from SSH_PRIVATE_KEY, which is a key or the path of one. Its passphrase comes from the file
// passphrase or SSH_PRIVATE_KEY_PASSPHRASE, a password from the file password or SFTP_PASSWORD. The
// keys of the agent of SSH_AUTH_SOCK are tried too. Without any of them, the keys in ~/.ssh are.
// Each new connection reads the credentials again. A rejected login is not repeated for 30 seconds,
// because servers block clients.
//
// # Host keys
//
// The key of the server must have the fingerprint ?hostkey=, or be listed in known_hosts: the file
// of that name in Options.Secrets, that of SSH_KNOWN_HOSTS, or else ~/.ssh/known_hosts and
// /etc/ssh/ssh_known_hosts. There is no way to accept any key.
//
// # Connections
//
// There are four connections, because a single one is limited by the window of its channel and by
// one CPU on each side. Each is opened when all others have a stream, and a server that accepts
// fewer gets fewer. The library has no deadlines and no reconnection, and its calls cannot be
// interrupted. Each call therefore runs to its end in its own goroutine, and the caller returns
// when its context ends. Connecting and logging in take at most 10 seconds. A session ends when the
// server sends nothing for 18 seconds while requests are pending.
//
// # Keys
//
// An object is a regular file. Its key is the path below the directory. Keys that are not paths are
// rejected. The server follows symbolic links, wherever they lead. List omits links that lead
// nowhere or back to one of their parent directories, names that begin with .stager-tmp- and
// directories named .stager. It fails on a name that is not UTF-8, because a dataset that silently
// lacks files is worse than none.
//
// # Versions
//
// A version consists of size and modification time, which the protocol reports in seconds. There
// are no file ids. So the version of a file that changes twice within a second, to the same size,
// does not show the second change. This has three consequences:
//   - A write that replaces a file of the same second or a later one sets the modification time of
//     its own file to the next second. Files that stager writes thus always differ.
//   - A read of a file that may still change within the second of its version waits until that
//     second is over. Ranges of one object are never a mixture. Reading a small file at once does
//     not wait.
//   - Capabilities do not promise PinnedReads.
//
// A read compares the version of the open file at its end; a long read also at its start. A file
// that is replaced by a rename stays open as it was.
//
// # Writes
//
// A file is written under a temporary name beside its final name, flushed to the disk of the server
// by fsync@openssh.com, and renamed by posix-rename@openssh.com. IfAbsent uses hardlink@openssh.com
// instead, which fails if the name exists. With IfVersion, writers exclude each other by claim files
// that links create; see [backends.Claim]. If the connection is lost before the flush, the parts
// are written again, because a server that crashed may have lost them.
//
// Not all servers have these extensions, and Capabilities and a warning in the log say so. Without
// fsync, a crash of the server may lose what was just written. Without posix-rename, readers may
// find no file while it is replaced. Without hardlink, writers that race for a key may replace each
// other's file.
package sftp
