package plan

// orderOf is Order for objects that can be read.
func orderOf(spec OrderSpec, m Manifest) func(epoch int) []int32 {
	order, err := Order(spec, m)
	if err != nil {
		panic(err)
	}
	return order
}

// digestOf is Digest for objects that can be read.
func digestOf(m Manifest, order OrderSpec, part Shard) string {
	digest, err := Digest(m, order, part)
	if err != nil {
		panic(err)
	}
	return digest
}

// listOf returns the objects of a manifest.
func listOf(m Manifest) List {
	if list, ok := m.Objects.(List); ok {
		return list
	}
	var list List
	for i := range m.Len() {
		obj, err := m.Objects.At(i)
		if err != nil {
			panic(err)
		}
		list = append(list, obj)
	}
	return list
}
