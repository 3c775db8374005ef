// Package dev runs the whole system in one process, with nothing set up: a PostgreSQL of its own, the schema, the API, a
// worker with the mock provider, and the receiver of its webhook. What is set is taken instead: a database, a provider, a
// webhook.
package dev

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// Run works until ctx ends. Of a database of its own it leaves nothing behind. What people read goes to d.Stdout, the log
// to d.Stderr.
func Run(ctx context.Context, d app.Development) error {
	s, show := d.Settings, screen{d.Stdout}
	// The port first: if it is taken, there is no need to start a database.
	listener, err := httpserver.Listen(ctx, net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // by the node otherwise
	own := s.DatabaseURL == ""
	if own {
		show.say("Starting PostgreSQL ...")
	}
	db, err := openDatabase(ctx, s.DatabaseURL)
	if err != nil {
		return stopped(ctx, err)
	}
	s.DatabaseURL = db.URL()
	if err = prepare(ctx, s, own, show); err != nil {
		err = stopped(ctx, err)
	} else {
		err = serve(ctx, d, s, listener)
	}
	err = errors.Join(err, db.Stop())
	show.farewell(own, err)
	return err
}

// serve runs everything on a database that is ready.
func serve(ctx context.Context, d app.Development, s settings.Settings, listener net.Listener) error {
	address := ownAddress(s.Host, listener.Addr())
	receive(&s, address)
	node, err := app.NewNode(ctx, app.NodeConfig{
		Name: "notifyq-api", Settings: s, Logger: app.NewLogger(d.Stderr, s.LogLevel), API: true, Worker: true,
	})
	if err != nil {
		return err
	}
	screen{d.Stdout}.welcome(s, "http://"+address.String())
	return node.Run(ctx, listener)
}

// ownAddress is where the process reaches itself: a listener that means all addresses is none that can be called.
func ownAddress(host string, listening net.Addr) netip.AddrPort {
	address := netip.MustParseAddrPort(listening.String()) // TCP listeners have no others
	ip := address.Addr().Unmap().WithZone("")
	if ip.IsUnspecified() {
		if set, err := netip.ParseAddr(host); err == nil {
			ip = set // 0.0.0.0 listens as [::], which also takes what comes by IPv4
		}
		ip = netip.MustParseAddr(app.Reachable(ip.String()))
	}
	return netip.AddrPortFrom(ip, address.Port())
}

const ownWebhook = "/webhooks/mock"

// receive lets the process be the receiver of its own webhook, unless another one is set.
func receive(s *settings.Settings, own netip.AddrPort) {
	s.Demo = true
	if s.WebhookURL != "" {
		return
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	s.WebhookURL = "http://" + own.String() + ownWebhook
	s.WebhookSecrets = []string{"whsec_" + base64.StdEncoding.EncodeToString(secret)}
	s.WebhookAllowCIDRs = append(s.WebhookAllowCIDRs, netip.PrefixFrom(own.Addr(), own.Addr().BitLen()))
}

// stopped is nil for an error that Ctrl-C made.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
