#!/usr/bin/env bash
#
# A walk through notifyq's HTTP API with curl: schedule a notification, repeat the request, reuse its key, read it, list,
# delay and cancel, send something invalid, send a batch, and look at metrics and health. Every command is printed before
# it runs, and every answer is checked: the first one that is not what it should be ends the walk with status 1.
#
# In one terminal, with nothing set up:
#
#     go run ./cmd/notifyq-api -dev
#
# and in another:
#
#     examples/curl/walkthrough.sh                          # http://127.0.0.1:3000
#     examples/curl/walkthrough.sh http://127.0.0.1:3900    # elsewhere
#     API_KEY=... examples/curl/walkthrough.sh              # where keys are needed: one for schedule, read and operate
#
# It needs a worker that delivers to ann@example.com, as -dev has, and can be run again and again: its keys are new each
# time.

set -euo pipefail

base=${1:-http://127.0.0.1:3000}
run=walk-$(date +%s)-$$
key=()
if [[ -n ${API_KEY:-} ]]; then
	key=(-H "Authorization: Bearer $API_KEY")
fi

# call METHOD PATH [BODY] [HEADER] prints a request, sends it, and prints the beginning of its answer. It leaves status,
# headers and body.
call() {
	local method=$1 path=$2 data=${3:-} header=${4:-} answer arg
	local args=("$base$path")
	if [[ $method != GET ]]; then
		args+=(-X "$method")
	fi
	if [[ -n $data ]]; then
		args+=(-H 'Content-Type: application/json' -d "$data")
	fi
	if [[ -n $header ]]; then
		args+=(-H "$header")
	fi
	printf '\n$ curl -sS'
	for arg in "${args[@]}"; do
		if [[ $arg =~ ^[A-Za-z0-9:/._-]+$ ]]; then
			printf ' %s' "$arg"
		else
			printf " '%s'" "$arg"
		fi
	done
	printf '\n'
	answer=$(curl -sS -i --max-time 30 ${key[@]+"${key[@]}"} "${args[@]}" | sed 's/\r$//')
	# Here-strings, and no pipes: a reader that has seen enough would end the writer, and that the walk.
	headers=$(sed '/^$/q' <<<"$answer")
	status=$(sed -n '1s/^HTTP\/[0-9.]* \([0-9]*\).*/\1/p' <<<"$headers")
	body=$(sed '1,/^$/d' <<<"$answer")
	printf '%s %s\n' "$status" "${body:0:200}"
}

# want STATUS [PATTERN...] ends the walk unless the last answer has this status and, in its body, these patterns.
want() {
	[[ $status == "$1" ]] || fail "the status should be $1"
	shift
	local pattern
	for pattern in "$@"; do
		grep -Eq -- "$pattern" <<<"$body" || fail "the body should have $pattern"
	done
}

# want_header PATTERN ends the walk unless the last answer has this header.
want_header() {
	grep -Eiq -- "^$1\$" <<<"$headers" || fail "there should be a header $1"
}

fail() {
	printf '\nnot ok: %s\n%s\n\n%s\n' "$1" "${headers:-}" "${body:-}" >&2
	exit 1
}

# member NAME is the text of that member of the last answer.
member() {
	sed -n "1s/^[^[]*[{,]\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$body"
}

say() {
	printf '\n# %s\n' "$1"
}

say 'Schedule a notification: stored once the answer is here.'
order='{"idempotencyKey":"'"$run"'","recipient":"ann@example.com","channel":"EMAIL","payload":{"subject":"Your order"}}'
call POST /notifications "$order"
want 201 '"status":"(PENDING|PROCESSING|SENT)"' '"priority":"NORMAL"' '"attemptCount":'
id=$(member id)
want_header "Location: /notifications/$id"

say 'The same request again, after a timeout say: the same job.'
call POST /notifications "$order"
want 200 "\"id\":\"$id\""
want_header 'Idempotent-Replayed: true'

say 'The same key for another request is a mistake.'
call POST /notifications "${order/ann@/bob@}"
want 409 '"code":"idempotency_key_reused"'

say 'Read it until it is sent.'
for _ in {1..100}; do
	call GET "/notifications/$id"
	want 200 "\"id\":\"$id\""
	if [[ $(member status) == SENT ]]; then
		break
	fi
	sleep 0.2
done
want 200 '"status":"SENT"' '"attemptCount":1' '"sentAt":"[0-9-]+T[0-9:.]+Z"'

say 'Its attempts.'
call GET "/notifications/$id/attempts"
want 200 '"class":"sent"'

say 'List: by key, and by recipient, the newest first.'
call GET "/notifications?idempotencyKey=$run"
want 200 "\"items\":\[\{\"id\":\"$id\"" '"nextCursor":null'
call GET '/notifications?recipient=ann%40example.com&status=SENT&limit=1'
want 200 '"items":\[\{' '"status":"SENT"'

say 'Tomorrow, with high priority; and then rather not.'
call POST /notifications '{"idempotencyKey":"'"$run"'-later","recipient":"ann@example.com","channel":"SMS","payload":"Tomorrow","priority":"HIGH","delaySeconds":86400}'
want 201 '"status":"PENDING"' '"priority":"HIGH"' '"sentAt":null'
later=$(member id)
call DELETE "/notifications/$later?reason=changed+my+mind"
want 200 '"status":"CANCELLED"' '"reason":"changed my mind"'
call DELETE "/notifications/$later"
want 200 '"status":"CANCELLED"'

say 'What was sent can neither be cancelled nor retried.'
call DELETE "/notifications/$id"
want 409 '"code":"not_cancellable"' '"currentStatus":"SENT"'
call POST "/notifications/$id/retry"
want 409 '"code":"not_redrivable"'

say 'What is wrong is said, without repeating it.'
call POST /notifications '{"idempotencyKey":"'"$run"'-wrong","recipient":"ann@example.com","channel":"PIGEON","payload":{},"delaySeconds":1.5}'
want 400 '"code":"invalid_request"' '"field":"delaySeconds"' '"requestId":"'
want_header 'Content-Type: application/problem\+json'
if grep -q PIGEON <<<"$body"; then
	fail 'the value should not be repeated'
fi
call POST /notifications '{"idempotencyKey":'
want 400 '"code":"invalid_json"'
call GET /notifications/not-a-uuid
want 400 '"field":"id"'
call GET /notifications/00000000-0000-7000-8000-000000000000
want 404 '"code":"not_found"'

say 'Many at once: what is valid is stored, and each is answered at its place.'
call POST /notifications/batch '{"notifications":[{"idempotencyKey":"'"$run"'-b1","recipient":"ann@example.com","channel":"PUSH","payload":1},{"idempotencyKey":"'"$run"'-b2","recipient":"","channel":"PUSH","payload":2},'"$order"']}'
want 200 '"results":\[\{"id":"[^"]+","replayed":false\},\{"error":\{"code":"invalid_request"' "\{\"id\":\"$id\",\"replayed\":true\}"

say 'Retry what was dead-lettered, if there is any.'
call POST /notifications/retry '{"limit":10,"reason":"the provider is back"}'
want 200 '"retried":[0-9]+' '"remaining":[0-9]+'

say 'How it goes.'
call GET /metrics '' 'Accept: application/json'
want 200 '"jobs":\{"pending":[0-9]+,' '"queueLagSeconds":' '"webhooks":\{'
call GET /metrics
want 200 '^# TYPE notifyq_'
for probe in /livez /readyz /health; do
	call GET "$probe"
	want 200 '"status":"(ok|ready|up|live)'
done

printf '\nok\n'
