//! Each file in `config/valid` loads; each in `config/invalid` gives exactly the mistakes it announces.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel::ban::{Field, Pattern, Rule, Scope};
use evenkeel::config::{
    Admin, Config, Gateway, Gone, Health, Log, Place, ProxyStatus, Reports, Retry, Sources, Store, Upstream,
};
use evenkeel::list::Protocol;
use evenkeel::pool::{Concurrency, Decay, Initial, Policy};
use evenkeel::probe::Anonymity;
use evenkeel::rules::{Connect, Rules};

/// The files of one folder; a folder that is empty or was moved tests nothing.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(folder);
    let entries = std::fs::read_dir(&folder).expect("a folder of cases").map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "toml")).collect();
    assert!(!files.is_empty(), "no case in {}", folder.display());
    files.sort();
    files
}

fn load(file: PathBuf) -> Result<Config, evenkeel::config::Mistakes> {
    Config::load(&Sources { file: Some(file), ..Sources::default() })
}

#[test]
fn valid_files_load() {
    for file in files("valid") {
        load(file.clone()).unwrap_or_else(|mistakes| panic!("{}:\n{mistakes}", file.display()));
    }
}

/// `# expect: LINE: KEY: BEGINNING` announces one mistake, in the order they must come.
#[test]
fn invalid_files_give_exactly_the_mistakes_they_announce() {
    for file in files("invalid") {
        let text = std::fs::read_to_string(&file).unwrap();
        let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# expect: ")).collect();
        let mistakes = load(file.clone()).expect_err("mistakes");
        let found: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            let expected = format!("{}:{expected}", file.display());
            assert!(found.starts_with(&expected), "\nfound    {found}\nexpected {expected}");
        }
    }
}

#[test]
fn every_key_reaches_its_place() {
    let file = files("valid").into_iter().find(|file| file.ends_with("every-key.toml")).unwrap();
    let config = load(file).unwrap();
    let secs = Duration::from_secs;
    let gateway = Gateway {
        listen: "[::1]:3128".parse().unwrap(),
        threads: 2,
        max_connections: 500,
        head_timeout: secs(1),
        idle_timeout: secs(2),
        tunnel_idle_timeout: secs(3),
        drain_timeout: secs(4),
        proxy_status: ProxyStatus::Errors,
        via: true,
        reports: Reports::Any,
    };
    let upstream = Upstream { dial_timeout: secs(6), response_timeout: secs(7), idle_timeout: secs(8) };
    let retry = Retry { attempts: 9, deadline: secs(10), replay_bytes: 11 };
    assert_eq!((config.gateway, config.upstream, config.retry), (gateway, upstream, retry));
    let health = Health {
        park_after: 3,
        cooldown: secs(12),
        max_cooldown: secs(13),
        max_parked: 14,
        url: Some("https://judge.example/?key=hush".parse().unwrap()),
        every: secs(11),
        timeout: secs(12),
        parallel: 13,
    };
    assert_eq!(config.health, health);
    assert!(!format!("{:?}", config.health).contains("hush"));
    let Admin { listen, token } = &config.admin;
    assert_eq!((listen, token.is_some()), (&Some("0.0.0.0:9180".parse().unwrap()), true));
    assert!(!format!("{:?}", config.admin).contains("hush"));
    assert_eq!(config.log, Log { requests: true });
    assert!(matches!(&config.pool.store, Store::Redis(url) if url.expose() == "redis://redis.example/2"));
    assert_eq!((&config.pool.key[..], config.pool.timeout), ("other:{pool}", secs(5)));
    assert_eq!((config.pool.proxies, config.pool.initial), (vec!["http://10.0.0.7:3128".into()], Initial::Count(12)));
    let [first, second] = &config.pool.ban[..] else { panic!("{:?}", config.pool.ban) };
    let rule = Rule {
        status: vec![429..=429, 500..=599],
        header: Some(Field { name: "Server".into(), value: Some(Pattern::new("(?i)shield").unwrap()) }),
        body: Some(Pattern::new("denied").unwrap()),
        hosts: vec!["shop.example".into(), ".wide.example".into()],
        scope: Scope::Proxy,
        span: secs(15),
    };
    assert_eq!((first, &second.status, second.span), (&rule, &vec![403..=403], secs(600)));
    assert_eq!(second.scope, Scope::ProxyAndHost);
    assert_eq!((config.pool.restore, config.pool.ramp_every), (Initial::Median, 13));
    assert_eq!(config.pool.state, Some("evenkeel.state".into()));
    assert_eq!(config.pool.decay, Some(Decay { keep: 0.995, period: Duration::from_secs(36 * 3600) }));
    let concurrency = Concurrency { max_in_flight: 14, heartbeat: secs(15) };
    assert_eq!(config.pool.policy, Policy::LeastConcurrent(concurrency));
    let rules = Rules {
        checked_within: secs(16),
        max_latency: Some(secs(17)),
        countries: vec!["DE".into(), "FR".into()],
        not_countries: vec!["US".into()],
        anonymity: Some(Anonymity::Anonymous),
        connect: Some(Connect::To("shop.example:443".parse().unwrap())),
        max_failures: Some(18),
        protocols: vec![Protocol::Socks5h, Protocol::Http],
        pause: secs(19),
        max_pause: secs(20),
    };
    assert_eq!(config.pool.rules, rules);
    assert_eq!(config.pool.local_for, None);
    let local = files("valid").into_iter().find(|file| file.ends_with("when-unreachable.toml")).unwrap();
    assert_eq!(load(local).unwrap().pool.local_for, Some(Duration::from_secs(90)));
}

#[test]
fn every_key_of_a_source_reaches_its_place() {
    let file = files("valid").into_iter().find(|file| file.ends_with("sources.toml")).unwrap();
    let folder = file.parent().unwrap().to_owned();
    let sources = load(file).unwrap().pool.sources;
    let [page, file] = &sources[..] else { panic!("{sources:#?}") };
    let Place::Page(url, Some(via)) = &page.place else { panic!("{page:?}") };
    assert_eq!(
        (&*page.name, url.to_string(), via.masked()),
        (
            "rented ✓ {x}",
            "https://***@lists.example/fresh?***".to_owned(),
            "socks5h://user:***@10.0.0.7:1080".to_owned(),
        )
    );
    assert_eq!((page.every, page.timeout), (Duration::from_secs(1), Duration::from_millis(1)));
    assert_eq!((page.max_bytes, page.max_members), (16 << 30, 1));
    assert_eq!(page.scheme.map(|scheme| scheme.name()), Some("socks4a"));
    assert_eq!((page.gone, page.may_be_empty, page.candidates), (Gone::Remove, true, false));
    assert_eq!((&*file.name, &file.place), ("../lists/rented.txt", &Place::File(folder.join("../lists/rented.txt"))));
    assert_eq!((file.scheme, file.gone, file.may_be_empty), (None, Gone::Keep, false));
    assert!(!format!("{sources:?}").contains("s3cret"));
}
