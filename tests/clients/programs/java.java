// needs: java
// debian: default-jdk-headless
import java.io.InputStream;
import java.net.*;
import java.net.http.*;
import java.nio.file.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.concurrent.Callable;
import javax.net.ssl.*;

/** java.net.http.HttpClient and java.net.HttpURLConnection. */
class Clients {
    static final URI proxy = URI.create(System.getenv("PROXY"));
    static final String origin = System.getenv("ORIGIN"), hello = "hello from the origin\n";

    public static void main(String[] arguments) throws Exception {
        System.out.println("version " + System.getProperty("java.version"));
        var tls = trusting(Path.of(System.getenv("CA")));
        var address = new InetSocketAddress(proxy.getHost(), proxy.getPort());
        // By default it asks for HTTP/2: over http with an upgrade, which must not hurt.
        var upgrading = HttpClient.newBuilder().proxy(ProxySelector.of(address)).sslContext(tls).build();
        var plain = HttpClient.newBuilder().proxy(ProxySelector.of(address)).sslContext(tls)
            .version(HttpClient.Version.HTTP_1_1).build();

        check("http", "HttpClient", () -> get(plain, "http"));
        check("http", "HttpClient asking for h2c", () -> get(upgrading, "http"));
        check("http", "HttpClient POST chunked", () -> post(plain, "http", false));
        check("http", "HttpClient expectContinue", () -> post(plain, "http", true));
        check("https", "HttpClient", () -> get(plain, "https"));
        check("https", "HttpClient asking for h2", () -> get(upgrading, "https"));
        check("https", "HttpClient POST chunked", () -> post(plain, "https", false));

        HttpsURLConnection.setDefaultSSLSocketFactory(tls.getSocketFactory());
        check("http", "HttpURLConnection", () -> connection("http", null));
        check("http", "HttpURLConnection POST chunked", () -> connection("http", "some words"));
        check("https", "HttpURLConnection", () -> connection("https", null));
        check("https", "HttpURLConnection POST chunked", () -> connection("https", "some words"));
        System.exit(0);
    }

    static Void get(HttpClient client, String scheme) throws Exception {
        for (int round = 0; round < 5; round++) {
            var request = HttpRequest.newBuilder(URI.create(scheme + "://" + origin + "/")).timeout(Duration.ofSeconds(20));
            var response = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
            same(hello, response.body());
            if (scheme.equals("http")) servedByGateway(response.headers().firstValue("Proxy-Status").orElse(""));
        }
        return null;
    }

    static Void post(HttpClient client, String scheme, boolean expectContinue) throws Exception {
        var body = HttpRequest.BodyPublishers.fromPublisher(HttpRequest.BodyPublishers.ofString("some words"));
        var request = HttpRequest.newBuilder(URI.create(scheme + "://" + origin + "/echo")).timeout(Duration.ofSeconds(20));
        var response = client.send(request.expectContinue(expectContinue).POST(body).build(), HttpResponse.BodyHandlers.ofString());
        same("some words", response.body());
        same("chunked", response.headers().firstValue("X-Framing").orElse(""));
        same(String.valueOf(expectContinue), response.headers().firstValue("X-Continue").orElse(""));
        return null;
    }

    static Void connection(String scheme, String body) throws Exception {
        var through = new Proxy(Proxy.Type.HTTP, new InetSocketAddress(proxy.getHost(), proxy.getPort()));
        var url = new URL(scheme + "://" + origin + (body == null ? "/" : "/echo"));
        var connection = (HttpURLConnection) url.openConnection(through);
        connection.setReadTimeout(20_000);
        if (body != null) {
            connection.setDoOutput(true);
            connection.setChunkedStreamingMode(4);
            try (var out = connection.getOutputStream()) {
                out.write(body.getBytes());
            }
        }
        try (InputStream in = connection.getInputStream()) {
            same(body == null ? hello : body, new String(in.readAllBytes()));
        }
        if (scheme.equals("http")) servedByGateway(connection.getHeaderField("Proxy-Status"));
        return null;
    }

    static SSLContext trusting(Path certificate) throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var in = Files.newInputStream(certificate)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    static void check(String column, String name, Callable<Void> body) {
        try {
            body.call();
            System.out.println("pass " + column + " " + name);
        } catch (Throwable error) {
            System.out.println("fail " + column + " " + name + ": " + error.toString().replace('\n', ' '));
        }
    }

    static void same(String wanted, String got) {
        if (!wanted.equals(got)) throw new AssertionError("wanted '" + wanted + "', got '" + got + "'");
    }

    static void servedByGateway(String status) {
        if (status == null || !status.startsWith("evenkeel; next-hop=")) throw new AssertionError("Proxy-Status is " + status);
    }
}
