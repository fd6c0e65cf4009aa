module github.com/stager-dev/stager/e2e/bench/peers/ossutil

go 1.26.0

tool github.com/aliyun/ossutil

require github.com/aliyun/ossutil v1.7.19 // indirect

require (
	github.com/aliyun/aliyun-oss-go-sdk v3.0.2+incompatible // indirect
	github.com/alyu/configparser v0.0.0-20191103060215-744e9a66e7bc // indirect
	github.com/droundy/goopt v0.0.0-20220217183150-48d6390ad4d1 // indirect
	github.com/golang/snappy v0.0.0-20180518054509-2e65f85255db // indirect
	github.com/syndtr/goleveldb v1.0.0 // indirect
	golang.org/x/crypto v0.17.0 // indirect
	golang.org/x/sys v0.15.0 // indirect
	golang.org/x/term v0.15.0 // indirect
	golang.org/x/time v0.0.0-20220722155302-e5dcc9cfc0b9 // indirect
)
