package httpprovider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/notifyq/notifyq"
)

// failure is what is told of a request that got no answer. The error of the transport is not in it: it may quote the
// URL, and what the other side sent.
func failure(ctx context.Context, begun bool, err error) error {
	var certificate *tls.CertificateVerificationError
	told := reason(ctx, err)
	switch {
	case errors.As(err, &certificate):
		return notifyq.Misconfigured(fmt.Errorf("http provider: %w", told))
	case !begun:
		return notSent(told)
	case told == nil:
		return notifyq.Ambiguous(errors.New("http provider: no answer: the server does not keep to HTTP"))
	default:
		return notifyq.Ambiguous(fmt.Errorf("http provider: no answer: %w", told))
	}
}

// reason is what can be told of an error, or nil.
func reason(ctx context.Context, err error) error {
	var (
		lookup      *net.DNSError
		certificate *tls.CertificateVerificationError
		noTLS       tls.RecordHeaderError
		operation   *net.OpError
		errno       syscall.Errno
		timeout     net.Error
	)
	switch {
	case errors.As(err, &certificate):
		return untrusted(certificate.Err)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return errors.New("the host's name does not exist")
	case errors.As(err, &lookup):
		return errors.New("the host's name can't be looked up")
	case errors.As(err, &noTLS):
		return errors.New("the server does not speak TLS")
	case errors.As(err, &operation) && strings.HasSuffix(operation.Op, " error"): // "remote error", "local error"
		return errors.New(operation.Err.Error()) // a TLS alert: a fixed text for its code
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("timeout")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed")
	default:
		return nil
	}
}

func untrusted(err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &authority):
		return errors.New("the certificate is of an unknown authority")
	case errors.As(err, &name):
		return errors.New("the certificate is for another name")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("the certificate has expired or is not valid yet")
	default:
		return errors.New("the certificate does not verify")
	}
}
