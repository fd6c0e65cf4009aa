package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile atomically replaces a file with the contents of from.
func replaceFile(path string, mode fs.FileMode, from io.Reader) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".stager-")
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, from)
	if err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
