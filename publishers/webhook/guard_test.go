package webhook

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// forms are hosts that lead to this machine, to private networks or to nobody.
var forms = []string{
	"http://127.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:169.254.169.254]/",
	"http://0.0.0.0/", "http://[::]/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/",
	"http://localhost./", "http://LOCALHOST/", "http://a.localhost/", "http://10.0.0.1/", "http://100.64.0.1/",
	"http://169.254.170.2/", "http://[fd00::1]/", "http://[fe80::1%25eth0]/", "http://[64:ff9b::7f00:1]/",
	"http://metadata.google.internal/", "http://user:pw@127.0.0.1/", "http://user@shop.example/", "http://@shop.example/",
	"http://example.test:25/", "ftp://shop.example/", "http://example.test@127.0.0.1/", "http://127.0.0.1./",
	"http://0x7f000001/", "http://0x/", "http://0/", "http://127.0.0.1:8080/", "http://[::127.0.0.1]/", "http://[2002:7f00:1::]/",
	"http://[::ffff:0:127.0.0.1]/", "http://[fec0::1]/", "http://[ff02::1]/", "http://[2001::1]/", "http://192.168.1.1/",
	"http://172.31.255.255/", "http://224.0.0.1/", "http://255.255.255.255/", "http://198.18.0.1/", "http://printer.local/",
	"http://router.home.arpa/", "http://127.0.0.1%00.shop.example/", "http://①②⑦.0.0.1/", "http://%31%32%37.0.0.1/",
	"http://shop.example\\@127.0.0.1/", "http://shop.example /", "http://[::1/", "http://:80/", "http:///", "http:shop.example",
	"//shop.example/", "shop.example", "file:///etc/passwd", "gopher://shop.example/", "javascript:alert(1)",
	"http://shop.example:0/", "http://shop.example:65536/", "http://shop.example:/", "http://shop.example:http/", "http://shop.example:6000/",
	"http://shop.example/#x", "http://shop.example/#", "http://höst.example/", "http://shop.example/\r\nX-Evil: 1", "", " ",
	"http://" + strings.Repeat("a", 254) + "/", "http://shop.example/" + strings.Repeat("a", 2048), "http://a.1.0x7f/",
}

func TestTargetsThatAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, raw := range forms {
		_, err := New(Config{URL: raw, Secrets: []string{secret("a")}})
		var broken *notifyq.InvalidError
		require.ErrorAs(t, err, &broken, raw)
		require.Equal(t, "webhook URL", broken.Field, raw)
		for _, part := range []string{"shop.example", "127.0.0", "pw@", "example.test", "169.254", "aaaa"} {
			require.NotContains(t, err.Error(), part, raw)
		}
	}
}

func TestTargetsThatAreTaken(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"https://shop.example", "http://shop.example/", "HTTPS://Shop.Example:8443/hook?token=x", "https://shop.example./",
		"https://1.2.3.4.example/", "https://8.8.8.8/", "https://[2606:4700::1111]:8443/", "https://a_b.example/", "https://xn--hst-sna.example/",
		"https://mailpit/", "https://internal.example/", "https://0x7f.example/",
	} {
		_, err := New(Config{URL: raw, Secrets: []string{secret("a")}})
		require.NoError(t, err, raw)
	}
	allowed := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")}
	for raw, ok := range map[string]bool{
		"http://127.0.0.1/": true, "http://[::ffff:127.0.0.1]/": true, "http://localhost:8080/": true, "http://10.1.2.3/": true,
		"http://queue.internal/": true, "http://10.2.0.1/": false, "http://[::1]/": false, "http://127.1/": false, "http://169.254.169.254/": false,
	} {
		_, err := New(Config{URL: raw, Secrets: []string{secret("a")}, AllowCIDRs: allowed})
		require.Equal(t, ok, err == nil, raw)
	}
}

func TestAddressTable(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "9.255.255.255": true, "11.0.0.0": true, "100.63.255.255": true, "100.128.0.0": true,
		"126.255.255.255": true, "128.0.0.0": true, "169.253.255.255": true, "169.255.0.0": true, "172.15.255.255": true, "172.32.0.0": true,
		"192.0.1.0": true, "192.0.3.0": true, "192.88.98.255": true, "192.167.255.255": true, "192.169.0.0": true, "198.17.255.255": true,
		"198.20.0.0": true, "223.255.255.255": true, "2606:4700::1111": true, "2001:200::1": true, "2a00::": true, "::ffff:8.8.8.8": true,
		"2003::": true, "3fff:1000::": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.0": false, "10.255.255.255": false, "100.64.0.1": false, "100.127.255.255": false,
		"127.0.0.1": false, "127.255.255.255": false, "169.254.169.254": false, "172.16.0.0": false, "172.31.255.255": false,
		"192.0.0.1": false, "192.0.2.1": false, "192.88.99.1": false, "192.168.0.1": false, "198.18.0.1": false, "198.19.255.255": false,
		"198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false, "::ffff:0:7f00:1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::808:808": false, "64:ff9b:1::1": false, "100::1": false, "2001::1": false, "2001:db8::1": false,
		"2001:10::": false, "2002:7f00:1::": false, "2002:808:808::": false, "3fff::1": false, "3fff:fff::": false, "5f00::1": false, "fc00::1": false,
		"fd00::1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false, "4000::": false,
	} {
		require.Equal(t, want, guard{}.allows(netip.MustParseAddr(addr)), addr)
	}
	require.False(t, guard{}.allows(netip.Addr{}))
}

func TestGuardFailsClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ network, address string }{
		{"tcp4", ""},
		{"tcp4", "8.8.8.8"},
		{"tcp4", "8.8.8.8:x"},
		{"tcp4", "shop.example:80"},
		{"tcp", "8.8.8.8:80"},
		{"udp4", "8.8.8.8:80"},
		{"unix", "/tmp/x"},
		{"tcp6", "[fe80::1%eth0]:80"},
		{"tcp6", "[::ffff:127.0.0.1]:80"},
	} {
		require.ErrorIs(t, guard{}.control(t.Context(), c.network, c.address, nil), errAddress)
	}
	require.NoError(t, guard{}.control(t.Context(), "tcp4", "8.8.8.8:80", nil))
	require.NoError(t, guard{}.control(t.Context(), "tcp6", "[2606:4700::1111]:443", nil))
}

// fakeDNS answers every name with the address that the function gives it.
func fakeDNS(t *testing.T, lookup func(name string) netip.Addr) *net.Resolver {
	server, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		for query := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(dnsAnswer(query[:n], lookup), from)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		group.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// dnsAnswer turns a question into its answer: the header, the question, and one record if it was for an IPv4 address.
func dnsAnswer(query []byte, lookup func(name string) netip.Addr) []byte {
	var name strings.Builder
	end := 12
	for query[end] != 0 {
		next := end + 1 + int(query[end])
		name.Write(query[end+1 : next])
		name.WriteByte('.')
		end = next
	}
	end += 5
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if addr := lookup(name.String()); binary.BigEndian.Uint16(query[end-4:]) == 1 && addr.IsValid() {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, addr.AsSlice()...)
	}
	return answer
}

// What New can't see is caught when the name has been resolved, and so is what it would have seen.
func TestNoConnectionToRefusedAddresses(t *testing.T) {
	t.Parallel()
	target, conns := rawServer(t, answering(func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) }))
	at, err := url.Parse(target)
	require.NoError(t, err)
	here := netip.MustParseAddr("127.0.0.1")
	resolver := fakeDNS(t, func(name string) netip.Addr {
		switch name {
		case "metadata.google.internal.":
			return netip.MustParseAddr("169.254.169.254")
		case "private.test.":
			return netip.MustParseAddr("10.0.0.1")
		}
		return here
	})
	refused := 0
	for _, host := range []string{
		"innocent.test", "private.test", "localhost", "LOCALHOST", "localhost.", "2130706433", "0x7f.1", "0177.0.0.1", "127.1",
		"metadata.google.internal", "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
		"[fe80::1%25lo]",
	} {
		p := newPublisher(t, "http://shop.example:"+at.Port(), func(cfg *Config) { cfg.AllowCIDRs = nil })
		p.dialer.Resolver = resolver
		p.url, err = url.Parse("http://" + host + ":" + at.Port())
		require.NoError(t, err)
		err = send(t, p, newEvent("x"))
		requireNotSent(t, err)
		if !strings.Contains(err.Error(), "name does not exist") { // what a resolver says to some numbers
			require.EqualError(t, err, "webhook: no connection: the address is not allowed", host)
			refused++
		}
	}
	require.Zero(t, conns.Load())
	require.GreaterOrEqual(t, refused, 14)

	// The same, with the operator's leave.
	p := newPublisher(t, "http://innocent.test:"+at.Port())
	p.dialer.Resolver = resolver
	require.NoError(t, send(t, p, newEvent("x")))
	require.EqualValues(t, 1, conns.Load())
}

func TestRefusalDoesNotTellWhetherThePortIsOpen(t *testing.T) {
	t.Parallel()
	open, _ := rawServer(t, func(net.Conn) {})
	closed := listen(t)
	require.NoError(t, closed.Close())
	var texts []string
	for _, target := range []string{open, "http://" + closed.Addr().String() + "/hook"} {
		p := newPublisher(t, "http://shop.example", func(cfg *Config) { cfg.AllowCIDRs = nil })
		var err error
		p.url, err = url.Parse(target)
		require.NoError(t, err)
		texts = append(texts, send(t, p, newEvent("x")).Error())
	}
	require.Equal(t, texts[0], texts[1])
}

// A name may lead to a public address when it is looked at, and elsewhere a moment later.
func TestEveryConnectionIsGuarded(t *testing.T) {
	t.Parallel()
	target, conns := rawServer(t, answering(func(c net.Conn) {
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"))
	}))
	at, err := url.Parse(target)
	require.NoError(t, err)
	var asked atomic.Int64
	p := newPublisher(t, "http://rebind.test:"+at.Port(), func(cfg *Config) {
		cfg.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	p.dialer.Resolver = fakeDNS(t, func(string) netip.Addr {
		if asked.Load() == 0 {
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.MustParseAddr("127.0.0.2") // where the server does not listen, but others do
	})
	require.NoError(t, send(t, p, newEvent("x")))
	asked.Store(1)
	err = send(t, p, newEvent("x"))
	requireNotSent(t, err)
	require.ErrorIs(t, err, errAddress)
	require.EqualValues(t, 1, conns.Load())
}

// The environment's proxy would connect in our place, past the guard.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	proxy, asked := rawServer(t, answering(func(net.Conn) {}))
	t.Setenv("HTTP_PROXY", proxy)
	t.Setenv("http_proxy", proxy)
	s := newSink(t, nil, status(http.StatusOK))
	at, err := url.Parse(s.url)
	require.NoError(t, err)
	p := newPublisher(t, "http://innocent.test:"+at.Port())
	p.dialer.Resolver = fakeDNS(t, func(string) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	require.NoError(t, send(t, p, newEvent("x")))
	require.Zero(t, asked.Load())
	require.Len(t, s.got(), 1)
}

func FuzzTarget(f *testing.F) {
	for _, raw := range forms {
		f.Add(raw)
	}
	f.Add("https://shop.example:8443/hook?token=x")
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := New(Config{URL: raw, Secrets: []string{secret("a")}})
		if err != nil {
			return
		}
		require.Contains(t, []string{"http", "https"}, p.url.Scheme)
		require.Nil(t, p.url.User)
		require.NotEmpty(t, p.url.Hostname())
		if addr, err := netip.ParseAddr(p.url.Hostname()); err == nil {
			require.True(t, guard{}.allows(addr))
		}
		_, err = p.request(t.Context(), newEvent("x"), time.Now())
		require.NoError(t, err)
	})
}
