// Package ftp reads objects in directories of FTP servers.
//
//	ftp://user@server/directory/
//	ftps://user@server/directory/
//
// [Schemes] describes the URL parameters. The path is relative to the directory in which the login
// starts, and absolute if it begins with "%2F". Nothing is ever written.
//
// # Credentials
//
// The user comes from the URL, a file named username in Options.Secrets, or FTP_USERNAME; the
// password from the file password or FTP_PASSWORD. Without a user the login is anonymous. Each new
// connection reads them again. A rejected login is not repeated for 30 seconds, because servers
// block clients.
//
// # Encryption
//
// ftp:// is not encrypted, and neither is its password. ftps:// encrypts both the control and the
// data connections and verifies the certificate, and fails on a server that cannot. It sends AUTH
// TLS, or starts with TLS on port 990 or with ?tls=implicit. Data connections resume the TLS session
// of their control connection, which many servers require.
//
// # Connections
//
// A connection transfers one file at a time, so there are several. A server that accepts fewer gets
// fewer. Data connections go to the address of the control connection, whatever the server says. A
// read ends when the server sends nothing for 30 seconds.
//
// # Objects
//
// An object is a regular file. Its key is the path below the directory. The server follows symbolic
// links, wherever they lead. MLSD lists a directory; for a server without it, LIST does, and then one
// request per file asks for the exact time. A listing that cannot be understood is an error, and so
// is a name that is not UTF-8 or contains a line break.
//
// # Versions
//
// A version consists of size and modification time, in seconds. A read compares the version before
// it returns the last bytes, a long one also at its start. A file that is changed twice within a
// second, to the same size, counts as unchanged. All transfers are binary. A server that sends more
// bytes than the file has, because it converts the ends of lines, is found out at the end of the
// file.
package ftp
