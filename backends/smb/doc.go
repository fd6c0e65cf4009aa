// Package smb speaks to shares of Windows, Samba, Azure Files and network disks, in
// SMB 2.0.2 to 3.1.1.
//
//	smb://user@server/share/directory/
//	smb://DOMAIN;user@server:4450/share/directory/?signing=off
//
// [Scheme] says which parameters there are. The directory need not exist; the share must.
//
// # Credentials
//
// User and domain come from the URL, else from files named username and domain in
// Options.Secrets, else from SMB_USERNAME and SMB_DOMAIN; the password from the file
// password or SMB_PASSWORD. The files are those of the Secret that csi-driver-smb
// takes. They are read again for each session, so a changed Secret is followed. A
// login that was refused is not tried again for half a minute, for servers lock
// accounts.
//
// Kerberos takes the place of a password where there is none and a keytab or a ticket
// cache is named; see package kerberos. The service is cifs on the host as the URL has
// it, so that is a name and no address.
//
// All requests are signed unless ?signing=off, or encrypted: where the server asks for
// it, and where it has agreed to SMB 3.1.1 with AES-GCM, unless ?signing=off.
// Encryption authenticates as signing does, and is the faster of the two by far: it
// uses the processor's own instructions, which the library's signing does not.
//
// # The library
//
// It is the fork by CloudSoda, since the package it comes from fails on every read
// from a server that insists on signing. It has neither deadlines nor reconnection,
// and must not be interrupted while it sends. So a call runs to its end in a goroutine
// of its own, and its caller leaves when his context ends. Connecting and logging in
// takes at most 10 seconds; a session whose server is silent for 18 while something is
// awaited is ended, and all that was under way on it fails with kind Unavailable. The
// next call connects again.
//
// There are two sessions, each with at most twelve transfers of 512 KiB and eight other
// calls at once: with more, servers run out of credits and answer that a parameter is
// wrong. A session asks the server for a sign of life when it begins, to learn how far
// it is: one that is near is read less far ahead, since that would only take memory.
//
// # Keys
//
// An object is a file, its key the path below the share's root. The characters
// :*?"<>| and a dot or space at the end of a name are not allowed in SMB; they are
// written as the Linux and macOS clients write them, in a range of Unicode set aside,
// and ?mapchars=off refuses them instead. Keys with a backslash are refused. Most
// servers take "A" and "a" for one name; keys that differ only so then overwrite one
// another. List leaves out names that begin with .stager-tmp-, and fails on a name
// that could not be asked for, since a dataset that silently lacks files is worse than
// none. Links are followed by the server; where it leaves that to clients, so does List,
// as far as they stay in the share.
//
// # Versions
//
// A version is size, time of modification and file id, which List gets with the
// names. A read compares it at its end, and a long one also at its beginning. Facts do
// not promise PinnedReads: while a file is open, Samba tells an old time of
// modification if the file is changed on the server itself.
//
// # Writes
//
// A file is written under a temporary name beside its final one, flushed to the
// server's disk, and renamed. When the connection is lost before, the parts written so
// far are written again, since a server that died may have lost them.
//
// The library renames only over what is there. IfAbsent is therefore decided by flags
// that writers put up beside the key, as claim tells: of several writers that say
// IfAbsent one wins, but another program that makes the file in the moment between the
// look and the rename is overwritten.
//
// IfVersion excludes writers by the same flags, while the version is compared and the
// file renamed. A flag ends with the session of its writer, so nobody waits for long for
// a writer that died.
//
// Servers remove no file that is open, and Windows replaces none. This process closes
// such a file before it removes or replaces it, and its readers find out what became
// of it; other clients are waited for, for some seconds. Delete removes directories that
// it leaves empty, as object stores have none.
package smb
