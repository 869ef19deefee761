//! Pools of both kinds, and what tests ask of them.

use std::time::Duration;

use evenkeel::member::Name;
use evenkeel::pool::embedded::{Embedded, Keeper};
use evenkeel::pool::redis::Redis;
use evenkeel::pool::verify::Context;
use evenkeel::pool::{Entry, Initial, Kind, Parking, Policy, Pool, PoolError, Prefetch, Stay};

use super::redis::{Redis as Server, eventually};

pub(crate) const KEY: &str = "pool:{test}";
/// No allocation is made before it is asked for.
pub(crate) const NONE_AHEAD: Prefetch = Prefetch { count: 0, max_age: Duration::from_secs(1) };
/// Short, so that tests of silence are quick; long enough for a loaded machine to answer in, nearly always.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(400);
/// Where nobody is silent.
const PATIENT: Duration = Duration::from_secs(10);
/// How long a pool may take to work again.
pub(crate) const RECOVERY: Duration = Duration::from_secs(3);

/// What a pool is verified against in which everything may be: counts decay, and members catch up slowly.
pub(crate) const ANYTHING_GOES: Context = Context {
    policy: Policy::LeastUsed,
    prefetch: 0,
    workers: 1,
    decays: true,
    initial: Initial::Ramp,
    restore: Initial::Ramp,
};

pub(crate) fn name(text: &str) -> Name {
    Name::copy_from_slice(text.as_bytes())
}

pub(crate) fn names<const N: usize>(texts: [&str; N]) -> Vec<Name> {
    texts.into_iter().map(name).collect()
}

pub(crate) fn connect_to(url: &str) -> Pool {
    Pool::Redis(Redis::connect(url, KEY, TIMEOUT, NONE_AHEAD).expect("a good URL"))
}

pub(crate) fn connect(server: &Server) -> Pool {
    connect_to(&server.url())
}

/// Where members may be catching up slowly.
pub(crate) fn connect_ramping(server: &Server, every: u64) -> Pool {
    let redis = Redis::connect(&server.url(), KEY, PATIENT, NONE_AHEAD).expect("a good URL");
    Pool::Redis(redis.with_ramp(every))
}

/// Runs one body against an empty pool of each kind, and against one that was saved and read again.
pub(crate) async fn on_both(body: impl AsyncFn(Pool)) {
    eprintln!("embedded:");
    body(Pool::Embedded(Embedded::new())).await;
    eprintln!("restored:");
    body(restored().await).await;
    eprintln!("redis:");
    let server = Server::start();
    body(Pool::Redis(Redis::connect(&server.url(), KEY, PATIENT, NONE_AHEAD).expect("a good URL"))).await;
}

/// Empty, after a life in another process.
async fn restored() -> Pool {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let open = || Keeper::open(&dir.path().join("state"), Embedded::new()).expect("a folder to write to").0;
    let mut keeper = open();
    let (pool, members) = (Pool::Embedded(keeper.pool()), names(["a:1", "b:1", "c:1?weight=3"]));
    pool.add(&members, Initial::Count(7)).await.unwrap();
    take(&pool, 3).await;
    pool.park(&members[0], &parking(Kind::Hand, Stay::For(Duration::from_secs(60)))).await.unwrap().unwrap();
    keeper.save().expect("saved");
    drop((keeper, pool));
    let pool = Pool::Embedded(open().pool());
    assert_eq!(pool.remove(&members).await.unwrap(), 3);
    pool
}

/// Allocates for a request that is over at once.
pub(crate) async fn allocate(pool: &Pool, tried: &[Name]) -> Result<Option<Name>, PoolError> {
    Ok(pool.allocate(tried).await?.map(|(member, _)| member))
}

pub(crate) async fn take(pool: &Pool, n: usize) -> Vec<Option<Name>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(allocate(pool, &[]).await.expect("a store that answers"));
    }
    taken
}

pub(crate) async fn counts(pool: &Pool) -> Vec<(Name, f64)> {
    pool.list().await.unwrap().into_iter().map(|Entry { member, count }| (member, count)).collect()
}

pub(crate) async fn sum(pool: &Pool) -> f64 {
    counts(pool).await.into_iter().map(|(_, count)| count).sum()
}

pub(crate) async fn works_again(pool: &Pool) {
    eventually(RECOVERY, "an allocation", async || matches!(allocate(pool, &[]).await, Ok(Some(_)))).await;
}

/// Asks `n` times before any answer is awaited; the answers in the order asked.
pub(crate) async fn futures_in_order<R>(n: usize, ask: impl Fn() -> R) -> Vec<Option<Name>>
where
    R: Future<Output = Result<Option<Name>, PoolError>>,
{
    let mut asked: Vec<_> = (0..n).map(|_| Box::pin(ask())).collect();
    let mut answers = vec![None; n];
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for (future, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(result) => *answer = Some(result.unwrap()),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Set aside for good, with a reason of no interest.
pub(crate) fn parking(kind: Kind, stay: Stay) -> Parking {
    Parking { kind, reason: "why".to_owned(), stay }
}
