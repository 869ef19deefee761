# needs: apt-get
. "$CHECK"
echo "version $(apt-get --version | head -n 1 | cut -d' ' -f2)"
# A flat repository with one package.
repository=$SCRATCH/../files/apt
mkdir -p package/DEBIAN package/usr/share/evenkeel-sample "$repository"
echo "$hello" >package/usr/share/evenkeel-sample/hello
printf '%s\n' "Package: evenkeel-sample" "Version: 1.0" "Architecture: all" "Maintainer: nobody <nobody@example.invalid>" \
    "Description: says hello" >package/DEBIAN/control
dpkg-deb --build package "$repository/evenkeel-sample_1.0_all.deb" >/dev/null
file=$repository/evenkeel-sample_1.0_all.deb
{
    cat package/DEBIAN/control
    printf '%s\n' "Filename: ./${file##*/}" "Size: $(stat --format %s "$file")" "SHA256: $(sha256sum <"$file" | cut -d' ' -f1)"
} >"$repository/Packages"
printf '%s\n' "Date: $(LC_ALL=C date -Ru)" "SHA256:" " $(sha256sum <"$repository/Packages" | cut -d' ' -f1) $(stat --format %s "$repository/Packages") Packages" >"$repository/Release"

# fetch URL FOLDER: everything apt reads and writes lies in FOLDER; the system's own state is not looked at.
fetch() {
    mkdir -p "$2"/{state/lists/partial,cache/archives/partial,etc} && cd "$2" && touch state/status
    echo "deb [trusted=yes] $1/files/apt ./" >etc/sources.list
    local options=(
        -o "Dir::State=$PWD/state" -o "Dir::State::status=$PWD/state/status" -o "Dir::Cache=$PWD/cache"
        -o "Dir::Etc=$PWD/etc" -o "Dir::Etc::sourcelist=$PWD/etc/sources.list" -o "Dir::Etc::sourceparts=/dev/null"
        -o "Dir::Etc::main=/dev/null" -o "Dir::Etc::parts=/dev/null" -o "Dir::Log=$PWD" -o "APT::Sandbox::User=$(id -un)"
        -o "Acquire::http::Proxy=$PROXY" -o "Acquire::https::Proxy=$PROXY" -o "Acquire::https::CAInfo=$CA"
        -o "Acquire::Retries=0" -o "Acquire::http::Timeout=15" -o "Acquire::Languages=none" -o "APT::Update::Error-Mode=any"
    )
    apt-get --quiet=2 "${options[@]}" update && apt-get --quiet=2 "${options[@]}" download evenkeel-sample &&
        same "$(sha256sum <"$file")" "$(sha256sum <evenkeel-sample_1.0_all.deb)"
}
check http "update, download" fetch "$http" by-http
check https "update, download" fetch "$https" by-https
