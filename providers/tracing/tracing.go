// Package tracing carries OpenTelemetry traces through the queue: what was traced when a notification was scheduled goes on
// when it is delivered, minutes or days later, by another process.
//
//	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{TraceContext: tracing.TraceContext})
//
//	provider := tracing.Provider(smtpProvider, tracing.Config{})
//
// Each delivery is a span of its own that is linked to the trace of the schedule, and not a child of it: a trace would
// otherwise last as long as the delay, and hold every retry. No recipient, key or payload is in any attribute.
package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/notifyq/notifyq"
)

const (
	scope  = "github.com/notifyq/notifyq/providers/tracing"
	header = "traceparent"
)

// TraceContext is for notifyq.ClientConfig.TraceContext: the W3C traceparent of the span in ctx, or nothing without one.
func TraceContext(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(header)
}

// Config is how deliveries are traced. Its zero value works.
type Config struct {
	// TracerProvider makes the tracer. Nil means the global one.
	TracerProvider trace.TracerProvider
	// Parent makes deliveries children of the schedule's span, instead of linking them to it.
	Parent bool
}

// Provider traces the deliveries of p, as the messaging conventions of OpenTelemetry say.
func Provider(p notifyq.Provider, cfg Config) notifyq.Provider {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	return &traced{provider: p, tracer: cfg.TracerProvider.Tracer(scope), parent: cfg.Parent}
}

type traced struct {
	provider notifyq.Provider
	tracer   trace.Tracer
	parent   bool
}

// Deliver implements notifyq.Provider.
func (t *traced) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	ctx, span := t.start(ctx, d)
	defer span.End()
	receipt, err := t.provider.Deliver(ctx, d)
	if err != nil {
		// Its text is the provider's, and may quote a recipient.
		span.SetStatus(codes.Error, class(err))
		span.SetAttributes(attribute.String("error.type", class(err)))
	}
	return receipt, err
}

func (t *traced) start(ctx context.Context, d notifyq.Delivery) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", "notifyq"),
			attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", string(d.Channel)),
			attribute.String("messaging.message.id", d.Key.String()),
			attribute.Int("notifyq.attempt", d.Attempt),
		),
	}
	scheduled := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: d.TraceContext})
	if from := trace.SpanContextFromContext(scheduled); from.IsValid() {
		if t.parent {
			ctx = trace.ContextWithRemoteSpanContext(ctx, from)
		} else {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
		}
	}
	return t.tracer.Start(ctx, "process notifyq."+strings.ToLower(string(d.Channel)), options...)
}

// class is how the provider marked its error.
func class(err error) string {
	switch {
	case notifyq.IsPermanent(err):
		return "permanent"
	case notifyq.IsAmbiguous(err):
		return "ambiguous"
	case notifyq.IsMisconfigured(err):
		return "misconfigured"
	default:
		return "transient"
	}
}
