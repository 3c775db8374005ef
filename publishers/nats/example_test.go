package nats_test

import (
	"fmt"
	"log"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/publishers/nats"
)

// A publisher for a relay. It does not need a server to be there yet.
func Example() {
	publisher, err := nats.New(nats.Config{
		URL:           "nats://shop:s3cret@127.0.0.1:4222",
		SubjectPrefix: "shop.",
		Stream:        "SHOP",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer publisher.Close()
	var relayed notifyq.Publisher = publisher

	fmt.Println(relayed)
	// Output: nats://127.0.0.1:4222
}
