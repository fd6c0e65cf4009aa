// Package pytorch trains a small network on a real dataset through a window, with
// PyTorch, WebDataset and a DataLoader of four workers, as a user would: what the
// network learns must not depend on where its shards came from.
package pytorch
