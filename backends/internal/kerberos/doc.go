// Package kerberos logs in with Kerberos, for the protocols hdfs and smb.
//
//	login := kerberos.New(opts, "", "")
//	err := login.Check()            // reports what is missing, without a request
//	client, err := login.Client()   // a client with a ticket
//
// The identity comes from the first of
//
//  1. a keytab: krb5.keytab in Options.Secrets, or KRB5_CLIENT_KTNAME. Its first entry names the
//     principal, unless the URL of the protocol does.
//  2. a ticket cache of type FILE: krb5cc in Options.Secrets, KRB5CCNAME, or /tmp/krb5cc_UID.
//
// The address of the realm's KDC comes from krb5.conf, in Options.Secrets, at KRB5_CONFIG, or in
// /etc.
//
// A process may outlive its ticket. With a keytab, a new ticket is obtained in time, or at the next
// login. A ticket cache is read again after kinit or a sidecar has renewed it, and a renewable
// ticket in it is renewed here.
//
// The protocol is implemented by gokrb5. It does not support contexts: each of its requests times
// out after ten seconds.
package kerberos
