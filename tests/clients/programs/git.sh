# needs: git
# debian: git
. "$CHECK"
echo "version $(git --version | cut -d' ' -f3)"
export http_proxy=$PROXY https_proxy=$PROXY GIT_SSL_CAINFO=$CA GIT_TERMINAL_PROMPT=0
git config --global user.name evenkeel
git config --global user.email evenkeel@example.invalid
# Larger pushes go chunked, after a probe that is refused or not.
git config --global http.postBuffer 65536

clone() { git clone --quiet "$1/git/sample.git" "$2" && same "$hello" "$(cat "$2/README")"; }
push() {
    cd "$1" && head -c 2000000 /dev/urandom >"$1-large" && git add . && git commit --quiet --message "Add $1" &&
        git push --quiet origin main && same "$(git rev-parse HEAD)" "$(git ls-remote origin main | cut -f1)"
}
fetch() { cd "$1" && git pull --quiet && git fsck --no-progress && ls by-https-large; }

check http "clone" clone "$http" by-http
check http "push, chunked" push by-http
check https "clone" clone "$https" by-https
check https "push, chunked" push by-https
check http "pull" fetch by-http
