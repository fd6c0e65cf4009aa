// Package smb speaks SMB.
package smb
