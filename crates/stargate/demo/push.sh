# Clones the repository whose URL is the payload, commits something and pushes a branch and a tag: what anybody's git does.
set -e
url=$(cat)
url=${url#\"}
url=${url%\"}
# Nobody's settings, templates or signing keys.
export HOME="$STARGATE_SCRATCH" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=ann GIT_AUTHOR_EMAIL=ann@example.org
export GIT_COMMITTER_NAME="$GIT_AUTHOR_NAME" GIT_COMMITTER_EMAIL="$GIT_AUTHOR_EMAIL"
cd "$STARGATE_SCRATCH"
git clone --quiet "$url" work
cd work
git checkout --quiet -B main
echo "attempt $STARGATE_ATTEMPT of job $STARGATE_JOB_ID" >> journey.txt
git add journey.txt
git commit --quiet --message "a first commit"
commit=$(git rev-parse HEAD)
tag=v$STARGATE_ATTEMPT
git tag "$tag"
echo "{\"event\": \"commit:made\", \"data\": {\"commit\": \"$commit\"}}"
# One push, two refs, both or none.
git push --quiet --atomic origin main "$tag"
echo "{\"result\": {\"commit\": \"$commit\", \"refs\": [\"refs/heads/main\", \"refs/tags/$tag\"]}}"
