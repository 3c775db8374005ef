package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const streamName = "SHOP"

// broker is the company's NATS, with a stream for what the shop publishes.
type broker struct {
	server *server.Server
	folder string
	conn   *natsgo.Conn
	stream jetstream.Stream
}

func startBroker(ctx context.Context) (_ *broker, err error) {
	b := &broker{}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if b.folder, err = os.MkdirTemp("", "notifyq-nats-"); err != nil {
		return nil, err
	}
	b.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.folder, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	b.server.Start()
	if !b.server.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server did not start")
	}
	if b.conn, err = natsgo.Connect(b.url()); err != nil {
		return nil, err
	}
	js, err := jetstream.New(b.conn)
	if err != nil {
		return nil, err
	}
	b.stream, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: streamName, Subjects: []string{"shop.>"}})
	return b, err
}

func (b *broker) url() string { return b.server.ClientURL() }

func (b *broker) stop() {
	if b.conn != nil {
		b.conn.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
	_ = os.RemoveAll(b.folder)
}
