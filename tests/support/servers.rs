//! Real proxies, each a process of one's own on a free port with a folder of its own, gone when the test is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::gateway::eventually;
use super::port::free_port;
use super::wire::PATIENCE;

/// A running server.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    dir: TempDir,
}

/// Where the servers are, unless a test is about IPv6.
pub(crate) const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

impl Server {
    /// tinyproxy, which asks for these credentials.
    pub(crate) fn tinyproxy(user: &str, password: &str) -> Self {
        Self::tinyproxy_with(user, password, "")
    }

    /// The same with these lines of configuration.
    pub(crate) fn tinyproxy_with(user: &str, password: &str, lines: &str) -> Self {
        Self::tinyproxy_on(V4, user, password, lines)
    }

    /// The same on another address.
    pub(crate) fn tinyproxy_on(ip: IpAddr, user: &str, password: &str, lines: &str) -> Self {
        Self::start("tinyproxy", "tinyproxy", ip, |at, dir| {
            let port = at.port();
            let config = format!("Port {port}\nListen {ip}\nBasicAuth {user} {password}\nTimeout 60\n{lines}\n");
            vec!["-d".into(), "-c".into(), write(dir, "tinyproxy.conf", &config)]
        })
    }

    /// squid, which asks for these credentials.
    pub(crate) fn squid(user: &str, password: &str) -> Self {
        Self::squid_with(user, password, "")
    }

    /// The same with these lines of configuration.
    pub(crate) fn squid_with(user: &str, password: &str, lines: &str) -> Self {
        Self::squid_on(V4, user, password, lines)
    }

    /// The same on another address.
    pub(crate) fn squid_on(ip: IpAddr, user: &str, password: &str, lines: &str) -> Self {
        Self::start("squid", "squid", ip, |at, dir| {
            let hash =
                Command::new("openssl").args(["passwd", "-apr1", password]).output().expect("openssl runs").stdout;
            let users = write(dir, "users", &format!("{user}:{}", String::from_utf8(hash).expect("text")));
            let config = format!(
                "http_port {at}\npid_filename none\ncache_log /dev/null\naccess_log none\ncoredump_dir {dir}\n\
                 cache_mem 1 MB\nshutdown_lifetime 0 seconds\nworkers 1\npinger_enable off\nnetdb_filename none\n\
                 auth_param basic program /usr/lib/squid/basic_ncsa_auth {users}\nauth_param basic children 1\n\
                 acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n{lines}\n",
                dir = dir.display()
            );
            open_to_all(dir);
            vec!["-N".into(), "-f".into(), write(dir, "squid.conf", &config)]
        })
    }

    /// microsocks, which asks for these credentials.
    pub(crate) fn microsocks(user: &str, password: &str) -> Self {
        Self::microsocks_with(user, password, &[])
    }

    /// The same with these arguments.
    pub(crate) fn microsocks_with(user: &str, password: &str, arguments: &[&str]) -> Self {
        Self::microsocks_on(V4, user, password, arguments)
    }

    /// The same on another address.
    pub(crate) fn microsocks_on(ip: IpAddr, user: &str, password: &str, arguments: &[&str]) -> Self {
        Self::start("microsocks", "microsocks", ip, |at, _| {
            let (ip, port) = (ip.to_string(), at.port().to_string());
            let usual = ["-i", &ip, "-p", &port, "-u", user, "-P", password];
            usual.iter().chain(arguments).map(|&argument| argument.to_owned()).collect()
        })
    }

    /// dante's server, which speaks SOCKS 4 and 5 with whoever comes.
    pub(crate) fn dante() -> Self {
        Self::dante_from("127.0.0.1")
    }

    /// The same, which dials from this address.
    pub(crate) fn dante_from(from: &str) -> Self {
        Self::dante_on(V4, &[from])
    }

    /// The same on another address, dialing from one of these.
    pub(crate) fn dante_on(ip: IpAddr, from: &[&str]) -> Self {
        Self::start("danted", "dante-server", ip, |at, dir| {
            let config = format!(
                "logoutput: /dev/null\ninternal: {ip} port = {}\n{}clientmethod: none\nsocksmethod: none\n\
                 client pass {{ from: 0/0 to: 0/0 }}\nsocks pass {{ from: 0/0 to: 0/0 }}\n",
                at.port(),
                from.iter().map(|from| format!("external: {from}\n")).collect::<String>()
            );
            let pid = dir.join("pid").display().to_string();
            vec!["-f".into(), write(dir, "danted.conf", &config), "-p".into(), pid]
        })
    }

    /// stunnel, which takes TLS with `certificate` and passes on to `to` what is inside.
    pub(crate) fn stunnel(certificate: &Certificate, to: SocketAddr) -> Self {
        Self::stunnel_on(V4, certificate, to)
    }

    /// The same on another address.
    pub(crate) fn stunnel_on(ip: IpAddr, certificate: &Certificate, to: SocketAddr) -> Self {
        Self::start("stunnel4", "stunnel4", ip, |at, dir| {
            let config = format!(
                "foreground = yes\npid =\nsyslog = no\ndebug = 4\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n\
                 [tls]\naccept = {ip}:{}\nconnect = {}:{}\ncert = {}\n",
                // Without brackets.
                at.port(),
                to.ip(),
                to.port(),
                certificate.chain().display()
            );
            vec![write(dir, "stunnel.conf", &config)]
        })
    }

    /// `openssl s_server` with these options, for handshakes that fail.
    pub(crate) fn openssl(certificate: &Certificate, options: &[&str]) -> Self {
        Self::start("openssl", "openssl", V4, |at, _| {
            let chain = certificate.chain().display().to_string();
            // With -www it does not look at its standard input, which is at its end.
            let own =
                ["s_server", "-www", "-accept", &at.to_string(), "-cert", &chain, "-key", &chain].map(str::to_owned);
            own.into_iter().chain(options.iter().map(|&option| option.to_owned())).collect()
        })
    }

    fn start(program: &str, package: &str, ip: IpAddr, arguments: impl Fn(SocketAddr, &Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let address = SocketAddr::new(ip, free_port(ip));
        let log = std::fs::File::create(dir.path().join("log")).expect("a file");
        let process = Command::new(program)
            .args(arguments(address, dir.path()))
            // Where Debian puts servers, for whoever is not root.
            .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|_| panic!("these tests need {program} on the PATH (apt-get install {package})"));
        let mut server = Self { process, address, dir };
        eventually(PATIENCE, program, || {
            if let Ok(Some(status)) = server.process.try_wait() {
                let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap_or_default();
                panic!("{program} has ended with {status}: {log}");
            }
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
        });
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not a kill: some have children to end.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// A certificate for `proxy.test`, 127.0.0.1 and ::1, and the authority that has issued it.
pub(crate) struct Certificate(TempDir);

impl Certificate {
    /// Valid now.
    pub(crate) fn make() -> Self {
        Self::valid("20200101000000Z", "20991231000000Z")
    }

    /// Valid between these times.
    pub(crate) fn valid(from: &str, until: &str) -> Self {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (authority, authority_key, leaf, leaf_key) = (at("ca.pem"), at("ca.key"), at("leaf.pem"), at("leaf.key"));
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        // Of a name of its own: two authorities of one name are one with two keys.
        let name = dir.path().file_name().expect("a name").to_string_lossy();
        openssl(&format!("req -x509 -days 2 {key} -subj /CN={name} -keyout {authority_key} -out {authority}"));
        let request = write(dir.path(), "leaf.csr", "");
        openssl(&format!("req {key} -subj /CN=proxy.test -keyout {leaf_key} -out {request}"));
        // `openssl ca` alone takes times.
        let (index, serial) = (write(dir.path(), "index", ""), write(dir.path(), "serial", "01"));
        let config = format!(
            "[ca]\ndefault_ca=own\n[own]\nnew_certs_dir={}\ndatabase={index}\nserial={serial}\ndefault_md=sha256\n\
             policy=any\nx509_extensions=leaf\n[any]\ncommonName=supplied\n[leaf]\n\
             basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:proxy.test,IP:127.0.0.1,IP:::1\n",
            dir.path().display()
        );
        let config = write(dir.path(), "ca.cnf", &config);
        openssl(&format!(
            "ca -batch -notext -config {config} -cert {authority} -keyfile {authority_key} -startdate {from} \
             -enddate {until} -in {request} -out {leaf}"
        ));
        let chain = [leaf_key, leaf].map(|file| std::fs::read_to_string(file).expect("a written file")).concat();
        write(dir.path(), "chain.pem", &chain);
        Self(dir)
    }

    /// One that signs itself, as `openssl req -x509` makes it.
    pub(crate) fn of_authority() -> Self {
        let Self(dir) = Self::make();
        let own = ["ca.key", "ca.pem"].map(|name| std::fs::read_to_string(dir.path().join(name)).expect("a file"));
        write(dir.path(), "chain.pem", &own.concat());
        Self(dir)
    }

    /// One that signs itself and is of the first version, as `openssl x509 -signkey` makes it; `key`: options for a new key.
    pub(crate) fn of_version_1(key: &str) -> Self {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let [key_file, request, own] = ["leaf.key", "leaf.csr", "ca.pem"].map(|name| write(dir.path(), name, ""));
        openssl(&format!("req {key} -nodes -subj /CN=device -keyout {key_file} -out {request}"));
        openssl(&format!("x509 -req -days 2 -in {request} -signkey {key_file} -out {own}"));
        let chain = [key_file, own].map(|file| std::fs::read_to_string(file).expect("a written file")).concat();
        write(dir.path(), "chain.pem", &chain);
        Self(dir)
    }

    /// Whom to trust, as a file.
    pub(crate) fn authority(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    /// The private key and the certificate.
    pub(crate) fn chain(&self) -> PathBuf {
        self.0.path().join("chain.pem")
    }
}

fn openssl(arguments: &str) {
    let output = Command::new("openssl").args(arguments.split_whitespace()).output();
    let output = output.expect("these tests need openssl on the PATH (apt-get install openssl)");
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a written file");
    path.display().to_string()
}

/// Started by root, squid reads its files as somebody else.
fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("our own folder");
}
