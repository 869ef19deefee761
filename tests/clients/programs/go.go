// needs: go
// debian: golang-go
// deadline: 180

// net/http with its default transport, which reads http_proxy and https_proxy.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

const hello = "hello from the origin\n"

func main() {
	fmt.Println("version", strings.TrimPrefix(runtime.Version(), "go"))
	os.Setenv("http_proxy", os.Getenv("PROXY"))
	os.Setenv("https_proxy", os.Getenv("PROXY"))
	pem, err := os.ReadFile(os.Getenv("CA"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.ExpectContinueTimeout = 30 * time.Second
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}

	for _, scheme := range []string{"http", "https"} {
		base := scheme + "://" + os.Getenv("ORIGIN")
		check(scheme, "GET", func() error {
			for round := 0; round < 5; round++ {
				if err := exchange(client, "GET", base+"/", nil, nil, hello); err != nil {
					return err
				}
			}
			return nil
		})
		check(scheme, "POST with a length", func() error {
			return exchange(client, "POST", base+"/echo", strings.NewReader("some words"), nil, "some words")
		})
		check(scheme, "POST chunked", func() error {
			// A reader of unknown length.
			return exchange(client, "POST", base+"/echo", io.MultiReader(strings.NewReader("some words")), nil, "some words")
		})
		check(scheme, "Expect, 100-continue", func() error {
			expect := http.Header{"Expect": {"100-continue"}}
			return exchange(client, "POST", base+"/echo", strings.NewReader("some words"), expect, "some words")
		})
	}
}

func exchange(client *http.Client, method, url string, body io.Reader, header http.Header, wanted string) error {
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if string(got) != wanted {
		return fmt.Errorf("wanted %q, got %q", wanted, got)
	}
	if status := response.Header.Get("Proxy-Status"); request.URL.Scheme == "http" && !strings.HasPrefix(status, "evenkeel; next-hop=") {
		return fmt.Errorf("Proxy-Status is %q", status)
	}
	return nil
}

func check(column, name string, body func() error) {
	if err := body(); err != nil {
		fmt.Printf("fail %s %s: %s\n", column, name, strings.ReplaceAll(err.Error(), "\n", " "))
	} else {
		fmt.Printf("pass %s %s\n", column, name)
	}
}
