# needs: python3
# debian: python3-venv
. "$CHECK"
# A wheel is a zip file; this one holds one module.
"$PYTHON" - "$SCRATCH/../files" <<'PYTHON'
import sys, zipfile
from pathlib import Path
files = Path(sys.argv[1])
name = "evenkeel_sample-1.0-py3-none-any.whl"
with zipfile.ZipFile(files / name, "w") as wheel:
    wheel.writestr("evenkeel_sample.py", "WORD = 'hello'\n")
    wheel.writestr("evenkeel_sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: evenkeel-sample\nVersion: 1.0\n")
    wheel.writestr("evenkeel_sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("evenkeel_sample-1.0.dist-info/RECORD", "")
index = files / "simple" / "evenkeel-sample"
index.mkdir(parents=True)
(index / "index.html").write_text(f"<!doctype html><a href='/files/{name}'>{name}</a>\n")
PYTHON
"$PYTHON" -m venv venv || { echo "skip http venv: python3 -m venv does not work here"; exit 0; }
export PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
echo "version $(venv/bin/pip --version | cut -d' ' -f2)"

install() {
    local index=$1
    shift
    venv/bin/pip install --quiet --retries 0 --timeout 15 --force-reinstall --index-url "$index/files/simple/" "$@" evenkeel-sample &&
        same hello "$(venv/bin/python -c 'import evenkeel_sample; print(evenkeel_sample.WORD)')"
}
check http "--proxy" install "$http" --proxy "$PROXY" --trusted-host "$ORIGIN"
check http "http_proxy" env http_proxy="$PROXY" bash -c "$(declare -f install same); install '$http' --trusted-host '$ORIGIN'"
check https "--proxy" install "$https" --proxy "$PROXY" --cert "$CA"
