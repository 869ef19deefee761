use super::*;

fn load(env: &[(&str, &str)], flags: Flags) -> Result<Config, Vec<String>> {
    load_file("", env, flags)
}

fn load_file(text: &str, env: &[(&str, &str)], flags: Flags) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, text).unwrap();
    let env = env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let path = format!("{}/", folder.path().display());
    Config::load(&Sources { file: Some(file), env, flags })
        .map_err(|mistakes| mistakes.iter().map(|m| m.to_string().replace(&path, "")).collect())
}

fn names(config: &Config) -> Vec<&[u8]> {
    config.pool.proxies.iter().map(|name| &name[..]).collect()
}

/// The file in the repository is the reference: it says what happens without it, and leaves no key out.
#[test]
fn the_reference_file_has_every_key_at_its_default() {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/config.toml"));
    assert_eq!(Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap(), Config::default());

    let document = Document::parse(FILE, include_str!("../../config.toml")).ok().unwrap();
    let flags = Flags::default();
    let mut reader = Reader::new(None, &[], &flags);
    read(&mut reader);
    // No rule and no source is the default; the keys of one stand there as a comment.
    let tables = ["pool.sources", "pool.ban"];
    let missing: Vec<_> = reader.keys().iter().filter(|key| !tables.contains(key) && !document.has(key)).collect();
    assert!(missing.is_empty() && !reader.keys().is_empty(), "{missing:?}");
}

/// A table that stands in the reference file as a comment, and the keys that it has.
fn commented(table: &str) -> (String, Vec<&'static str>) {
    let begin = format!("# [[{table}]]");
    let lines = include_str!("../../config.toml").lines().skip_while(|line| *line != begin);
    let lines: Vec<_> = lines.map_while(|line| line.strip_prefix("# ")).collect();
    let keys = lines.iter().filter_map(|line| Some(line.split_once(" = ")?.0)).filter(|key| !key.contains(' '));
    (lines.join("\n"), keys.collect())
}

/// The keys there are, as a mistake names them.
fn known_keys(table_with_mistake: &str) -> Vec<String> {
    let wrong = load_file(table_with_mistake, &[], Flags::default()).unwrap_err();
    wrong[0].split_once("there are ").unwrap().1.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_reference_file_has_every_key_of_a_rule() {
    let (text, keys) = commented("pool.ban");
    let load = |text: &str| load_file(text, &[], Flags::default()).map(|config| config.pool.ban);
    let given = "status = [429, '500-599']\nheader = 'cf-mitigated: challenge'\nbody = '(?i)access denied'";
    assert_eq!(load(&text).unwrap(), load(&format!("[[pool.ban]]\n{given}")).unwrap());
    assert_eq!(keys, known_keys("[[pool.ban]]\nstatus = 429\nzzzzzzzzzzzz = 1"));
}

#[test]
fn the_reference_file_has_every_key_of_a_source_at_its_default() {
    let (text, keys) = commented("pool.sources");
    let load = |text: &str| load_file(text, &[], Flags::default()).map(|config| config.pool.sources);
    let mut expected = load("[[pool.sources]]\nfile = 'rented.txt'").unwrap();
    expected[0].name = "rented".to_owned();
    let without_folder = |mut sources: Vec<PoolSource>| {
        for source in &mut sources {
            let Place::File(file) = &source.place else { panic!("{source:?}") };
            source.place = Place::File(file.file_name().unwrap().into());
        }
        sources
    };
    assert_eq!(without_folder(load(&text.replace("url = \"\"", "")).unwrap()), without_folder(expected));
    assert_eq!(keys, known_keys("[[pool.sources]]\nfile = 'a'\nzzzzzzzzzzzz = 1"));
}

#[test]
fn flags_beat_the_environment_which_beats_the_file_which_beats_the_defaults() {
    let file = "[pool]\nkey = 'file'\ntimeout = '2s'\n[gateway]\nlisten = '127.0.0.1:1'\n[retry]\nattempts = 2";
    let env = [("EVENKEEL_POOL__KEY", "env"), ("EVENKEEL_GATEWAY__LISTEN", "127.0.0.1:2")];
    let flags = Flags { key: Some("flag".into()), ..Flags::default() };
    let config = load_file(file, &env, flags).unwrap();
    assert_eq!(config.pool.key, "flag");
    assert_eq!(config.gateway.listen.port(), 2);
    assert_eq!((config.pool.timeout, config.retry.attempts), (Duration::from_secs(2), 2));
    assert_eq!(config.retry.deadline, DEADLINE);
}

#[test]
fn every_key_has_its_variable() {
    let flags = Flags::default();
    let mut reader = Reader::new(None, &[], &flags);
    read(&mut reader);
    for key in reader.keys() {
        let name = format!("EVENKEEL_{}", key.replace('.', "__").to_uppercase());
        // Nothing takes this, except two keys that take any text and a list, which names the item.
        let result = load(&[(&name, "{ }:x")], Flags::default());
        match result {
            Ok(config) if *key == "pool.state" => assert_eq!(config.pool.state, Some("{ }:x".into())),
            Ok(config) => assert_eq!((*key, &config.pool.key[..]), ("pool.key", "{ }:x")),
            Err(mistakes) => assert!(mistakes.len() == 1 && mistakes[0].starts_with(&name), "{mistakes:?}"),
        }
    }
}

#[test]
fn words_of_the_environment_become_numbers_switches_and_lists() {
    let env = [
        ("EVENKEEL_GATEWAY__VIA", "true"),
        ("EVENKEEL_GATEWAY__THREADS", "4"),
        ("EVENKEEL_POOL__INITIAL", "7"),
        ("EVENKEEL_RETRY__REPLAY_BYTES", "10kB"),
        ("EVENKEEL_POOL__PROXIES", "a:1, b:2 ,,a:1"),
    ];
    let config = load(&env, Flags::default()).unwrap();
    assert_eq!((config.gateway.via, config.gateway.threads), (true, 4));
    assert_eq!((config.pool.initial, config.retry.replay_bytes), (Initial::Count(7), 10_000));
    assert_eq!(names(&config), [b"a:1", b"b:2"]);
    let config = load(&[("EVENKEEL_POOL__PROXIES", r#"["http://u:a,b@h:1", 'b:2']"#)], Flags::default()).unwrap();
    assert_eq!(names(&config), [&b"http://u:a,b@h:1"[..], b"b:2"]);
}

#[test]
fn flags_add_proxies_and_an_empty_variable_takes_those_of_the_file_out() {
    let file = "[pool]\nproxies = ['a:1', 'b:2']";
    let flags = Flags {
        proxies: vec!["c:3".into(), "a:1".into()],
        listed: vec!["d:4".into(), "c:3".into()],
        ..Flags::default()
    };
    assert_eq!(names(&load_file(file, &[], flags.clone()).unwrap()), [b"a:1", b"b:2", b"c:3", b"d:4"]);
    let env = [("EVENKEEL_POOL__PROXIES", "")];
    assert_eq!(names(&load_file(file, &env, flags).unwrap()), [b"c:3", b"a:1", b"d:4"]);
}

/// One run tells everything: the file's mistakes by line, then those of the other sources.
#[test]
fn all_mistakes_come_at_once_each_with_its_place() {
    let file = "[retry]\natempts = 3\n[gateway]\nthreads = -1\n[pool]\nproxies = [\n  'a:1',\n  'b',\n]";
    let env = [
        ("EVENKEEL_POOL__KEY", ""),
        ("EVENKEEL_POOL__STOER", "embedded"),
        ("EVENKEEL_POOL__PROXIES", "a:1,b"),
        ("EVENKEEL_SERVICE_HOST", "10.0.0.1"),
        ("EVENKEEL_LOG", "debug"),
        ("OTHER__KEY", "x"),
    ];
    let flags = Flags { listen: Some("8080".into()), proxies: vec!["c".into()], ..Flags::default() };
    let mistakes = load_file(file, &env, flags).unwrap_err();
    let expected = [
        "c.toml:2: retry.atempts: there is no such key; did you mean retry.attempts?",
        "c.toml:4: gateway.threads: must be a whole number from 0 to 1024, not -1",
        "c.toml:8: pool.proxies[1]: cannot use \"b\": has no port; ",
        "--listen: must be IP:port or localhost:port, ",
        "EVENKEEL_POOL__KEY: must be the name of a Redis key, ",
        "EVENKEEL_POOL__PROXIES[1]: cannot use \"b\": has no port; ",
        "EVENKEEL_POOL__STOER: sets no key there is; did you mean EVENKEEL_POOL__STORE?",
        "--proxy: cannot use \"c\": has no port; ",
    ];
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.starts_with(expected), "{mistake}\n{expected}");
    }
}

/// With one underscore for two, or without the table.
#[test]
fn a_variable_that_all_but_spells_a_key_is_a_mistake() {
    for (name, told) in [
        ("EVENKEEL_POOL_STORE", "sets no key there is; did you mean EVENKEEL_POOL__STORE?"),
        ("EVENKEEL_STORE", "sets no key there is; did you mean EVENKEEL_POOL__STORE?"),
        ("EVENKEEL_GATEWAY_LISTEN", "sets no key there is; did you mean EVENKEEL_GATEWAY__LISTEN?"),
        ("EVENKEEL_LISTEN", "sets no key there is; did you mean EVENKEEL_GATEWAY__LISTEN or EVENKEEL_ADMIN__LISTEN?"),
        ("EVENKEEL_POOL_RULES_PAUSE", "sets no key there is; did you mean EVENKEEL_POOL__RULES__PAUSE?"),
        ("EVENKEEL_POOL_SOURCES", "cannot be given here; write [[pool.sources]] in a file"),
        ("EVENKEEL_SOURCES", "cannot be given here; write [[pool.sources]] in a file"),
    ] {
        assert_eq!(load(&[(name, "embedded")], Flags::default()).unwrap_err(), [format!("{name}: {told}")]);
    }
}

/// Of services called evenkeel, evenkeel-pool and evenkeel-gateway; and what nobody can know.
#[test]
fn variables_that_kubernetes_sets_are_none_of_ours() {
    let mut names = vec!["EVENKEEL_".to_owned(), "EVENKEEL_LOG".to_owned(), "EVENKEEL_BIN".to_owned()];
    for service in ["EVENKEEL", "EVENKEEL_POOL", "EVENKEEL_GATEWAY", "EVENKEEL_ADMIN"] {
        for end in ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_ADMIN", "PORT", "PORT_8080_TCP"] {
            names.push(format!("{service}_{end}"));
        }
        names.extend(["PROTO", "PORT", "ADDR"].map(|end| format!("{service}_PORT_8080_TCP_{end}")));
    }
    let env: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "tcp://10.0.0.1:8080")).collect();
    assert_eq!(load(&env, Flags::default()).unwrap(), Config::default());
}

#[test]
fn a_file_that_was_asked_for_must_be_readable_text() {
    let load = |file: &std::path::Path| {
        let sources = Sources { file: Some(file.to_owned()), ..Sources::default() };
        Config::load(&sources).unwrap_err().to_string()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    assert!(load(&file).starts_with(&format!("{}: cannot be read: No such file", file.display())));
    std::fs::write(&file, b"[log]\n# \xff").unwrap();
    assert!(load(&file).ends_with("c.toml:2: is not UTF-8; save the file as UTF-8 text"));
}

#[test]
fn a_byte_order_mark_and_carriage_returns_change_nothing() {
    let text = "\u{feff}[pool]\r\nkey = 'k'\r\n[log]\r\nrequests = 1\r\n";
    let mistakes = load_file(text, &[], Flags::default()).unwrap_err();
    assert_eq!(mistakes, ["c.toml:4: log.requests: must be true or false, not 1"]);
}

#[test]
fn lengths_of_time_and_sizes_have_units() {
    let duration = |text: &str| value::duration(&value::Value::Word(text.into())).ok();
    for (text, ms) in [("0s", 0), ("500ms", 500), ("30s", 30_000), ("1m30s", 90_000), ("24h", 86_400_000)] {
        assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
    }
    for text in ["", "30", "s", "1.5s", "-1s", "1 s", "1d", "1s30", "24h1ms", "99999999999999999999999h", "1µs"] {
        assert_eq!(duration(text), None, "{text}");
    }
    let bytes = |text: &str| value::bytes(16 << 20)(&value::Value::Word(text.into())).ok();
    for (text, size) in [("0", 0), ("65536", 65536), ("64KiB", 65536), ("16MiB", 16 << 20), ("10kB", 10_000)] {
        assert_eq!(bytes(text), Some(size), "{text}");
    }
    for text in ["", "KiB", "64K", "64 KiB", "17MiB", "16777217", "99999999999999999999GiB", "-1", "1.5MiB"] {
        assert_eq!(bytes(text), None, "{text}");
    }
}

#[test]
fn every_kind_of_store_can_be_named() {
    for url in [
        "redis://h",
        "redis://:s3cret@h:6379/3",
        "rediss://u:s3cret@h:6380",
        "redis+unix:///run/redis.sock",
        "redis+unix://u:s3cret@any/run/redis.sock",
        "redis-cluster://h:1?node=i:2",
        "rediss-cluster://h:1",
        "redis-sentinel://h:1?sentinelServiceName=main",
        "rediss-sentinel://h:1/2?sentinelServiceName=main&node=i:2",
    ] {
        let config = load(&[("EVENKEEL_POOL__STORE", url)], Flags::default()).unwrap();
        let Store::Redis(store) = &config.pool.store else { panic!("{url}") };
        assert_eq!(store.expose(), url);
        assert!(!format!("{config:?} {store}").contains("s3cret"), "{store}");
    }
}

/// Whatever is wrong with it, and wherever it was put.
#[test]
fn no_mistake_shows_a_password() {
    for text in [
        "redis://u:s3cret@h:port",
        "redis://u:s3cret@h/1/2",
        "redis://u:s3cret/s3cret@h",
        "redis://s3cret@h:port",
        "redis+unix://u:s3cret@/run/redis.sock",
        "redis-cluster://h:1?node=u:s3cret@i:2",
        "redis-sentinel://u:s3cret@h:1",
        "redis-sentinel://h:1?sentinelPassword=s3cret",
        "valkey://u:s3cret@h",
        "http://u:s3cret/x@h:80",
        "http://u:s3cret@x@h",
        "u:s3cret@h:1,http://x@h:2",
        "['u:s3cret@h:1', 'http://x@h:2",
        "10.0.0.7:3128:u:s3cret",
        "http://10.0.0.7:3128:u:s3cret",
    ] {
        let flag = || Some(text.to_owned());
        let proxies = vec![text.to_owned()];
        let store = load(&[], Flags { store: flag(), ..Flags::default() }).unwrap_err();
        let proxies = load(&[], Flags { proxies, ..Flags::default() }).unwrap_err();
        let file = format!("{text:?} = 1\n[pool]\nproxies = {text:?}\n{text:?} = 1\n");
        let file = load_file(&file, &[("EVENKEEL_GATEWAY__VIA", text)], Flags::default()).unwrap_err();
        assert_eq!((store.len(), proxies.len(), file.len()), (1, 1, 4));
        // A bare host:port:user:password is no URL; as a proxy it is known, elsewhere nothing marks the secret.
        let shown = if text.contains('@') || text.contains('?') { [store, proxies, file].concat() } else { proxies };
        assert!(!shown.iter().any(|mistake| mistake.contains("s3cret")), "{shown:#?}");
    }
}

#[test]
fn a_cluster_needs_a_key_with_a_hash_tag() {
    let load = |key: &str| {
        let flags = Flags { store: Some("redis-cluster://h:1".into()), key: Some(key.into()), ..Flags::default() };
        load(&[], flags).is_ok()
    };
    assert!(load("{a}") && load("evenkeel:{a}:b") && load("}{a}"));
    assert!(!load("evenkeel") && !load("{}") && !load("a{}{b}") && !load("{a"));
}

#[test]
fn a_decay_is_a_share_and_a_time() {
    let decay = |text: &str| {
        let env = [("EVENKEEL_POOL__DECAY", text)];
        load(&env, Flags::default()).map(|config| config.pool.decay.map(|d| (d.keep, d.period.as_secs())))
    };
    for (text, expected) in [
        ("", None),
        ("10%/24h", Some((0.9, 86_400))),
        ("0.5%/1m", Some((0.995, 60))),
        ("99%/1s", Some((0.01, 1))),
        ("50%/168h", Some((0.5, 604_800))),
    ] {
        assert_eq!(decay(text), Ok(expected), "{text}");
    }
    for text in
        ["10%", "10/24h", "10%/", "%/1h", "0%/1h", "100%/1h", "-1%/1h", "nan%/1h", "1e1%/1h", "10%/999ms", "10%/9000h"]
    {
        assert!(decay(text).is_err(), "{text}");
    }
}

/// fred's words for it name what its parser looked for, and some repeat a part of the URL.
#[test]
fn a_store_that_cannot_be_used_says_what_is_wrong_and_shows_no_secret() {
    for (url, why) in [
        ("redis://u:s3cret@h:99999", "its port is not a number from 0 to 65535"),
        ("redis://u:s3cret@h:port", "its port is not a number from 0 to 65535"),
        ("redis://u:s3cret@", "it has no host"),
        ("redis://u:s3cret@a b", "its host is neither an IP address nor a host name"),
        ("redis://u:s3cret@h/x", "what follows the host is not the number of a database, like /0"),
        ("redis://u:s3cret@h/300", "what follows the host is not the number of a database, like /0"),
        ("redis://u:s3cret@h/1/2", "what follows the host is not the number of a database, like /0"),
        ("redis-cluster://u:s3cret@h:1?node=h", "its node= is not host:port"),
        ("redis-cluster://u:s3cret@h:1?node=h:99999", "its node= is not host:port"),
        ("redis-sentinel://u:s3cret@h:1", "it names no service; add ?sentinelServiceName=name"),
    ] {
        let said = load(&[("EVENKEEL_POOL__STORE", url)], Flags::default()).unwrap_err();
        assert!(said[0].ends_with(&format!(": {why}")) && !said[0].contains("s3cret"), "{url}: {said:?}");
    }
}
