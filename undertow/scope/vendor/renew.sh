#!/usr/bin/env bash
# Fetches the libraries of the page from npm again, in the versions named here, and checks what came.
# To move to a newer version: change it here, run `bash undertow/scope/vendor/renew.sh`, then the tests in tests/scope.
set -euo pipefail
cd "$(dirname "$0")"
DAGRE=3.1.3
UPLOT=1.6.32

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
here=$PWD
(cd "$folder" && npm pack --silent "@dagrejs/dagre@$DAGRE" "uplot@$UPLOT" >/dev/null)

tar -xzf "$folder/dagrejs-dagre-$DAGRE.tgz" -C "$folder" && mv "$folder/package" "$folder/dagre"
tar -xzf "$folder/uplot-$UPLOT.tgz" -C "$folder" && mv "$folder/package" "$folder/uplot"

# Source maps stay behind: their comments would make browsers ask for files that are not there.
sed '/^\/\/# sourceMappingURL=/d' "$folder/dagre/dist/dagre.esm.js" >"$here/dagre.js"
sed '/^\/\/# sourceMappingURL=/d' "$folder/uplot/dist/uPlot.esm.js" >"$here/uplot.js"
cp "$folder/uplot/dist/uPlot.min.css" "$here/uplot.css"
cp "$folder/dagre/LICENSE" "$here/dagre.LICENSE"
cp "$folder/uplot/LICENSE" "$here/uplot.LICENSE"
{
  echo "@dagrejs/dagre $DAGRE, uplot $UPLOT"
  sha256sum dagre.js uplot.js uplot.css
} >"$here/VERSIONS"
cat "$here/VERSIONS"
