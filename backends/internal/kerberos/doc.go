// Package kerberos is how protocols log in by Kerberos: hdfs and smb.
//
//	login := kerberos.New(opts, "", "")
//	err := login.Check()            // what is missing, without asking a server
//	client, err := login.Client()   // a client that has a ticket
//
// Who we are says the first of
//
//  1. a keytab: krb5.keytab in Options.Secrets, or KRB5_CLIENT_KTNAME; its first
//     entry says whose, unless the protocol's URL does
//  2. a ticket cache of type FILE: krb5cc in Options.Secrets, KRB5CCNAME, or
//     /tmp/krb5cc_UID
//
// and krb5.conf, in Options.Secrets or where KRB5_CONFIG says or in /etc, tells where
// the realm's server is.
//
// A process may live longer than its ticket. With a keytab a new one is had in time,
// or at the next login; a cache is read again when kinit or a sidecar has renewed it,
// and a renewable ticket in it is renewed here.
//
// The protocol is gokrb5's. It has no contexts: each of its requests to a server ends
// by itself after ten seconds.
package kerberos
