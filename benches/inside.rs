//! What a request costs inside, apart from the kernel: choosing, reading heads, knowing members.
//!
//! `cargo bench --features internals`. Times are medians of one thread on the machine at hand; compare runs on one
//! machine only. How the gateway does against other proxies is for a load generator to say (README, "Speed").

use bytes::Bytes;
use divan::Bencher;
use evenkeel::internals;
use evenkeel::member::{Member, Name};
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::{Initial, Pool};

fn main() {
    divan::main();
}

fn member(number: usize) -> Name {
    Name::from(format!("http://user{number}:secret@10.0.{}.{}:3128", number / 250 % 250, number % 250).into_bytes())
}

/// One allocation from the embedded store: flat but for the depth of two trees.
#[divan::bench(args = [10, 1_000, 100_000, 1_000_000])]
fn choose(bencher: Bencher<'_, '_>, members: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let pool = Pool::Embedded(Embedded::new());
    let names: Vec<_> = (0..members).map(member).collect();
    runtime.block_on(pool.add(&names, Initial::Min)).expect("the embedded store never fails");
    bencher.bench_local(|| runtime.block_on(pool.allocate(&[])).expect("never fails").expect("members"));
}

/// All counts changed at once, while requests wait.
#[divan::bench(args = [10_000, 100_000, 1_000_000], sample_count = 5, sample_size = 1)]
fn rebase(bencher: Bencher<'_, '_>, members: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let names: Vec<_> = (0..members).map(member).collect();
    let pool = || {
        let pool = Pool::Embedded(Embedded::new());
        runtime.block_on(pool.add(&names, Initial::Count(1))).expect("the embedded store never fails");
        pool
    };
    bencher.with_inputs(pool).bench_local_values(|pool| {
        let rebased = runtime.block_on(pool.rebase()).expect("the embedded store never fails");
        (rebased, pool)
    });
}

/// Parsing a member that no cache knows.
#[divan::bench]
fn parse_member() -> Member {
    Member::parse(divan::black_box(&Bytes::from_static(b"http://user:s%40cret@proxy.example:3128"))).expect("a member")
}

const BROWSER: &[u8] = b"GET http://shop.example/items?page=7 HTTP/1.1\r\n\
    Host: shop.example\r\n\
    Proxy-Connection: keep-alive\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Accept-Language: de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7\r\n\
    Cookie: session=0123456789abcdef; theme=dark; consent=yes\r\n\
    Cache-Control: max-age=0\r\n\
    Upgrade-Insecure-Requests: 1\r\n\r\n";
const LOAD_GENERATOR: &[u8] = b"GET http://origin.test/s HTTP/1.1\r\nHost: origin.test\r\n\r\n";

/// Reading a request head and writing it for the upstream proxy.
#[divan::bench(args = ["browser", "load generator"])]
fn rewrite_request(bencher: Bencher<'_, '_>, client: &str) {
    let head = if client == "browser" { BROWSER } else { LOAD_GENERATOR };
    let member = Member::parse(&member(1)).expect("a member");
    bencher.bench_local(|| internals::read_request(divan::black_box(head), None, &member, None));
}

const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx\r\n\
    Date: Mon, 30 Nov 2026 18:13:17 GMT\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Content-Length: 51234\r\n\
    Connection: keep-alive\r\n\
    Set-Cookie: session=0123456789abcdef; Path=/; HttpOnly\r\n\
    Set-Cookie: seen=1; Path=/\r\n\
    Cache-Control: private, max-age=0\r\n\
    Vary: Accept-Encoding\r\n\
    Strict-Transport-Security: max-age=31536000\r\n\r\n";

/// Reading a response head and writing it for the client.
#[divan::bench]
fn rewrite_response(bencher: Bencher<'_, '_>) {
    let mut out = Vec::with_capacity(1024);
    bencher.bench_local(|| {
        out.clear();
        internals::read_response(divan::black_box(PAGE), &hyper::Method::GET, &mut out)
    });
}

/// A kept connection, taken and kept again: to an HTTP proxy, or to one of so many origins.
#[divan::bench(args = [None, Some(1), Some(100), Some(4_000)])]
fn reuse_connection(bencher: Bencher<'_, '_>, origins: Option<usize>) {
    let (mut idle, mut n) = (internals::Idle::to(origins), 0);
    bencher.bench_local(move || {
        n += 1;
        idle.reuse(divan::black_box(n)).expect("kept")
    });
}
