package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// nameService is that of a cluster with two NameNodes.
const nameService = "cluster"

// highlyAvailable has two NameNodes share their edits by a directory.
func (h *HDFS) highlyAvailable(dir string) {
	h.props["fs.defaultFS"] = "hdfs://" + nameService
	h.props["dfs.nameservices"] = nameService
	h.props["dfs.ha.namenodes."+nameService] = "nn1,nn2"
	h.props["dfs.namenode.shared.edits.dir"] = "file://" + filepath.Join(dir, "edits")
	h.props["dfs.client.failover.proxy.provider."+nameService] = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
	h.props["dfs.ha.fencing.methods"] = "shell(/bin/true)"
	h.props["dfs.ha.tail-edits.period"] = "1s"
	h.props["ipc.client.connect.max.retries"] = "1" // the tools' patience with a NameNode that is away
	for _, n := range h.namenodes {
		of := "." + nameService + "." + n.name
		h.props["dfs.namenode.rpc-address"+of] = n.rpc
		h.props["dfs.namenode.http-address"+of] = n.http
		h.props["dfs.namenode.name.dir"+of] = "file://" + filepath.Join(dir, n.name)
	}
}

// id are the arguments of a NameNode that is one of two, which with one address for
// both cannot tell by itself which one it is.
func (h *HDFS) id(name string, args ...string) []string {
	if len(h.namenodes) == 1 {
		return args
	}
	return append([]string{"-Ddfs.ha.namenode.id=" + name}, args...)
}

// Activate makes one of two NameNodes the active one, when it has started. The other
// must be a standby, or away.
func (h *HDFS) Activate(ctx context.Context, name string) error {
	i := slices.IndexFunc(h.namenodes, func(n namenode) bool { return n.name == name })
	if i < 0 {
		return fmt.Errorf("there is no NameNode %q", name)
	}
	if err := h.until(ctx, func(ctx context.Context) error {
		b, err := h.namenodes[i].ask(ctx, "NameNodeStatus")
		if err == nil && b.State != "standby" {
			err = fmt.Errorf("%s is %s", name, b.State)
		}
		return err
	}); err != nil {
		return err
	}
	return h.admin(ctx, "-transitionToActive", "--forceactive", name)
}

// Deactivate makes a NameNode a standby.
func (h *HDFS) Deactivate(ctx context.Context, name string) error {
	return h.admin(ctx, "-transitionToStandby", name)
}

func (h *HDFS) admin(ctx context.Context, args ...string) error {
	out, err := h.Command(ctx, "org.apache.hadoop.hdfs.tools.DFSHAAdmin", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("haadmin %v: %w\n%s", args, err, out)
	}
	return nil
}

// Protect changes the protection of what DataNodes send: authentication, integrity or
// privacy, or several with commas between. A cipher such as AES/CTR/NoPadding is for
// privacy; without one it is what DIGEST-MD5 has.
func (h *HDFS) Protect(protection, cipher string) error {
	return errors.Join(h.Configure(map[string]string{
		"dfs.data.transfer.protection":            protection,
		"dfs.encrypt.data.transfer.cipher.suites": cipher,
	}), h.KillDaemon("datanode"), h.StartDaemon("datanode"))
}

// ProtectRPC changes the protection of what NameNodes are asked, in the same words.
func (h *HDFS) ProtectRPC(ctx context.Context, protection string) error {
	return errors.Join(h.Configure(map[string]string{"hadoop.rpc.protection": protection}), h.Kill(), h.Start(ctx))
}

// secure has daemons and clients log in with Kerberos. NameNodes are nn/localhost, the
// DataNode is dn/localhost, and all three act as the superuser, as does the principal
// of his name.
func (h *HDFS) secure(ctx context.Context, kdc *KDC) error {
	keys, err := kdc.Keytab(ctx, "nn/localhost", "dn/localhost")
	if err != nil {
		return err
	}
	own, err := kdc.Keytab(ctx, h.User)
	if err != nil {
		return err
	}
	cache := filepath.Join(filepath.Dir(own), "superuser.cache")
	if err := kdc.Ticket(ctx, own, h.User, cache); err != nil {
		return err
	}
	h.kdc = kdc
	h.variables = append(kdc.Env(), "KRB5_CLIENT_KTNAME="+own, "KRB5CCNAME="+cache)
	for name, value := range map[string]string{
		"hadoop.security.authentication":  "kerberos",
		"hadoop.security.auth_to_local":   "RULE:[2:$1](nn|dn)s/.*/" + h.User + "/\nDEFAULT",
		"dfs.namenode.kerberos.principal": "nn/_HOST@" + Realm,
		"dfs.namenode.keytab.file":        keys,
		"dfs.datanode.kerberos.principal": "dn/localhost@" + Realm,
		"dfs.datanode.keytab.file":        keys,
		"dfs.block.access.token.enable":   "true",
		"dfs.data.transfer.protection":    "authentication,privacy",
		"hadoop.rpc.protection":           "privacy",
		"ignore.secure.ports.for.testing": "true",
	} {
		h.props[name] = value
	}
	return nil
}
