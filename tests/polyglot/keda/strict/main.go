// Reads manifests by the types of Kubernetes and of KEDA, strictly: an unknown field is an error. A line for each object.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := keda.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	for _, part := range strings.Split("\n"+string(text), "\n---") {
		if !strings.Contains(part, "\nkind:") {
			continue // nothing but comments
		}
		if _, kind, err := decoder.Decode([]byte(part), nil, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			defer os.Exit(1)
		} else {
			fmt.Println(kind.Kind)
		}
	}
}
