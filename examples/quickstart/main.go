// Command quickstart is a small shop that sends its mails through notifyq, and shows what happens to each of them.
//
//	go run ./examples/quickstart
//
// It needs nothing set up: it starts a PostgreSQL of its own from local server binaries, and an SMTP server inside this
// process that refuses, delays and loses mails on purpose. Ctrl-C drains the worker, and nothing is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `A shop that sends its mails through notifyq, in about ten seconds.

  go run ./examples/quickstart

Settings, both optional:
  DATABASE_URL   a PostgreSQL (14 or newer) to use instead of a private one. The example works in
                 schemas of its own, notifyq_quickstart_*, and drops them at the end.
  SMTP_URL       a mail server to use instead of the one inside, as smtp://user:password@host:587
                 or smtps://host. Its answers decide how the jobs end.

Exit code 0: every job ended, with the server inside as the story says. 1: it did not. 130: interrupted.
`

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("SMTP_URL"))
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted && (err == nil || errors.Is(err, context.Canceled)):
		fmt.Println("\nInterrupted; the worker has drained and nothing is left behind.")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run plays the story from an empty database to the table at its end.
func run(ctx context.Context, databaseURL, smtpURL string) (err error) {
	began := time.Now()
	db, err := openDatabase(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()

	mails, err := openMail(ctx, smtpURL)
	if err != nil {
		return err
	}
	defer mails.close()

	show := newScreen()
	shop, err := openShop(db, show)
	if err != nil {
		return err
	}
	if err := shop.placeOrders(ctx); err != nil {
		return err
	}
	stopWorker, err := startWorker(db, mails, shop.client, show)
	if err != nil {
		return err
	}
	story := shop.operate(ctx, mails)
	if err := stopWorker(); err != nil {
		return errors.Join(story, err)
	}
	if story != nil {
		return story
	}
	if err := showTable(ctx, db); err != nil {
		return err
	}
	if err := shop.check(ctx, mails); err != nil {
		return err
	}
	fmt.Printf("\nDone in %.1f s. The code is in examples/quickstart; examples/embed is the short version.\n", time.Since(began).Seconds())
	return nil
}
