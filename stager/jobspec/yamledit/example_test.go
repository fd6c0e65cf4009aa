package yamledit_test

import (
	"fmt"
	"log"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

func Example() {
	d := yamledit.Split([]byte("# mine\nspec:\n  containers: # one\n  - name: main\n    env: [{name: A}]\n"))[0]
	if err := yamledit.Parse(d); err != nil {
		log.Fatal(err)
	}
	main := d.Root.Get("spec", "containers").Item("name", "main")
	edit := yamledit.NewEditor(d)
	edit.Insert(main, main.Len()-1, yamledit.Map{{Key: "image", Value: "trainer:1"}})
	env := main.Get("env")
	edit.Insert(env, env.Len()-1, yamledit.Map{{Value: yamledit.Map{{Key: "name", Value: "B"}}}})
	fmt.Print(string(edit.Text()))
	// Output:
	// # mine
	// spec:
	//   containers: # one
	//   - name: main
	//     env: [{name: A}, {name: B}]
	//     image: trainer:1
}
