// Check what is deployed: render the Helm chart, decode every manifest strictly as Kubernetes does, and load the
// compose file as Docker Compose does. What was rendered is printed as YAML, for tests that look further.
//
//	check chart DIRECTORY [VALUES]
//	check compose FILE
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	var err error
	switch {
	case len(os.Args) >= 3 && os.Args[1] == "chart":
		err = chart(os.Args[2], os.Args[3:])
	case len(os.Args) == 3 && os.Args[1] == "compose":
		err = compose(os.Args[2])
	default:
		err = fmt.Errorf("usage: check chart DIRECTORY [VALUES] | check compose FILE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func chart(directory string, files []string) error {
	loaded, err := loader.LoadDir(directory)
	if err != nil {
		return err
	}
	if err := loaded.Validate(); err != nil {
		return err
	}
	values := chartutil.Values{}
	for _, file := range files {
		if values, err = chartutil.ReadValuesFile(file); err != nil {
			return err
		}
	}
	options := chartutil.ReleaseOptions{Name: "east", Namespace: "streams", Revision: 1, IsInstall: true}
	given, err := chartutil.ToRenderValues(loaded, values, options, nil) // checks values.schema.json, too
	if err != nil {
		return err
	}
	strict := engine.Engine{Strict: true}
	rendered, err := strict.Render(loaded, given)
	if err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var names []string
	for name := range rendered {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		for _, manifest := range releaseutil.SplitManifests(rendered[name]) {
			if strings.TrimSpace(manifest) == "" {
				continue
			}
			if _, _, err := decoder.Decode([]byte(manifest), nil, nil); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Printf("---\n# %s\n%s\n", name, manifest)
		}
	}
	return nil
}

func compose(file string) error {
	options, err := cli.NewProjectOptions(
		[]string{file}, cli.WithWorkingDirectory(filepath.Dir(file)), cli.WithName("check"), cli.WithConsistency(true),
	)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalYAML()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
