package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/providers/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tracer(t *testing.T) (*trace.TracerProvider, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	return provider, spans
}

func delivery(traceContext string) notifyq.Delivery {
	return notifyq.Delivery{
		Key: uuid.New(), Attempt: 2, Recipient: "canary-recipient", Channel: notifyq.ChannelEmail,
		Payload: []byte(`"canary-payload"`), TraceContext: traceContext,
	}
}

func TestDeliveryIsLinkedToTheTraceOfItsSchedule(t *testing.T) {
	t.Parallel()
	tp, spans := tracer(t)
	ctx, scheduling := tp.Tracer("test").Start(t.Context(), "order")
	stored := tracing.TraceContext(ctx)
	scheduling.End()
	require.NotEmpty(t, stored)

	var inside oteltrace.SpanContext
	provider := tracing.Provider(notifyq.ProviderFunc(func(ctx context.Context, _ notifyq.Delivery) (notifyq.Receipt, error) {
		inside = oteltrace.SpanContextFromContext(ctx)
		return notifyq.Receipt{ProviderID: "p"}, nil
	}), tracing.Config{TracerProvider: tp})
	d := delivery(stored)
	receipt, err := provider.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, "p", receipt.ProviderID)

	span := spans.Ended()[1]
	require.Equal(t, "process notifyq.email", span.Name())
	require.Equal(t, span.SpanContext().SpanID(), inside.SpanID(), "what the provider traces is inside")
	require.Len(t, span.Links(), 1)
	require.Equal(t, scheduling.SpanContext().SpanID(), span.Links()[0].SpanContext.SpanID())
	require.NotEqual(t, scheduling.SpanContext().TraceID(), span.SpanContext().TraceID())
	require.Contains(t, fmt.Sprint(span.Attributes()), d.Key.String())
	require.NotContains(t, fmt.Sprint(span.Attributes()), "canary")
}

func TestDeliveryCanBeAChildOfItsSchedule(t *testing.T) {
	t.Parallel()
	tp, spans := tracer(t)
	ctx, scheduling := tp.Tracer("test").Start(t.Context(), "order")
	provider := tracing.Provider(notifyq.ProviderFunc(func(context.Context, notifyq.Delivery) (notifyq.Receipt, error) {
		return notifyq.Receipt{}, nil
	}), tracing.Config{TracerProvider: tp, Parent: true})
	_, err := provider.Deliver(t.Context(), delivery(tracing.TraceContext(ctx)))
	require.NoError(t, err)
	require.Equal(t, scheduling.SpanContext().SpanID(), spans.Ended()[0].Parent().SpanID())
	require.Empty(t, spans.Ended()[0].Links())
}

func TestFailureIsToldByItsClassAndNotInTheProvidersWords(t *testing.T) {
	t.Parallel()
	for class, failed := range map[string]error{
		"transient": errors.New("canary"), "permanent": notifyq.Permanent(errors.New("canary")),
		"ambiguous": notifyq.Ambiguous(errors.New("canary")), "misconfigured": notifyq.Misconfigured(errors.New("canary")),
	} {
		tp, spans := tracer(t)
		provider := tracing.Provider(notifyq.ProviderFunc(func(context.Context, notifyq.Delivery) (notifyq.Receipt, error) {
			return notifyq.Receipt{}, failed
		}), tracing.Config{TracerProvider: tp})
		for _, stored := range []string{"", "garbage", "00-0-0-0"} {
			_, err := provider.Deliver(t.Context(), delivery(stored))
			require.Equal(t, failed, err)
		}
		for _, span := range spans.Ended() {
			require.Equal(t, trace.Status{Code: codes.Error, Description: class}, span.Status())
			require.Empty(t, span.Links())
		}
	}
	require.Empty(t, tracing.TraceContext(t.Context()))
}
