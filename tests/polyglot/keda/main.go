// What KEDA does with a broker, by the code that KEDA itself uses: the stub of its external scaler, and the two parsers
// of its metrics-api scaler.
//
//	keda-probe push HOST:PORT KEY=VALUE…      the calls of an external-push trigger; a line for each answer
//	keda-probe metrics SELECTOR < TEXT        the sample of a metrics page that a valueLocation selects
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func main() {
	if os.Args[1] == "metrics" {
		metrics(os.Args[2])
		return
	}
	push(os.Args[2], os.Args[3:])
}

func push(address string, pairs []string) {
	connection, err := grpc.NewClient(address,
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	keda := pb.NewExternalScalerClient(connection)
	metadata := map[string]string{"scalerAddress": address}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		metadata[name] = value
	}
	asked := &pb.ScaledObjectRef{Name: "worker", Namespace: "shop", ScalerMetadata: metadata}

	specs, err := keda.GetMetricSpec(ctx, asked)
	check(err)
	for _, spec := range specs.MetricSpecs {
		fmt.Println("spec", spec.MetricName, spec.TargetSize, spec.TargetSizeFloat)
		values, err := keda.GetMetrics(ctx, &pb.GetMetricsRequest{MetricName: spec.MetricName, ScaledObjectRef: asked})
		check(err)
		for _, value := range values.MetricValues {
			fmt.Println("value", value.MetricName, value.MetricValue, value.MetricValueFloat)
		}
	}
	streamed, err := keda.StreamMetricSpec(ctx, asked)
	check(err)
	_, err = streamed.Recv()
	fmt.Println("specs", status.Code(err))
	stream, err := keda.StreamIsActive(ctx, asked)
	check(err)
	for range 2 {
		answer, err := stream.Recv()
		check(err)
		fmt.Println("active", answer.Result)
	}
}

func metrics(location string) {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(location)
	check(err)
	text, err := io.ReadAll(os.Stdin)
	check(err)
	reader := expfmt.NewTextParser(model.UTF8Validation)
	families, err := reader.TextToMetricFamilies(strings.NewReader(string(text)))
	check(err)
	name, wanted := "", map[string]string{}
	for _, matcher := range matchers {
		if matcher.Name == "__name__" {
			name = matcher.Value
		} else {
			wanted[matcher.Name] = matcher.Value
		}
	}
	for _, metric := range families[name].GetMetric() {
		has := map[string]string{}
		for _, label := range metric.GetLabel() {
			has[label.GetName()] = label.GetValue()
		}
		fits := true
		for label, value := range wanted {
			fits = fits && has[label] == value
		}
		if fits {
			fmt.Println(metric.GetGauge().GetValue())
			return
		}
	}
	check(fmt.Errorf("value %s not found", location))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
